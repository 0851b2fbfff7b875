#include "user/kernel/outliving_process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dynprof {
namespace {

// Of the root control groups, by which whole groups are killed: version 2 alone, version 2 beside version 1, systemd's own.
constexpr const char* kRootGroups[] = {"/sys/fs/cgroup/cgroup.procs",
                                       "/sys/fs/cgroup/unified/cgroup.procs",
                                       "/sys/fs/cgroup/systemd/cgroup.procs"};

// What follows runs in the child, a copy of a program with threads: no memory is taken, no lock.

// The end of a service, or of a group that is out of memory, kills all processes of its control group. Where there is no
// right to leave it, the group stays.
void leave_control_group() {
  for (const char* path : kRootGroups) {
    const int group = ::open(path, O_WRONLY | O_CLOEXEC);
    if (group < 0) continue;
    (void)!::write(group, "0", 1);
    ::close(group);
  }
}

void give_up_identity(const char* name) {
  ::setsid();
  ::prctl(PR_SET_NAME, name);
  // argv[0], which nothing here reads any more.
  char* command = ::program_invocation_name;
  const std::size_t room = ::strlen(command);
  std::fill_n(command, room, '\0');
  std::copy_n(name, std::min(room, ::strlen(name)), command);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  ::syscall(SYS_capset, &header, none);
}

}  // namespace

std::unique_ptr<OutlivingProcess> OutlivingProcess::start(const char* name, const Work& work) {
  UniqueFd program(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!program) return nullptr;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  // No signal when it ends: only this class waits for a child of that kind.
  const long child = ::syscall(SYS_clone, CLONE_FILES, nullptr, nullptr, nullptr, 0);
  if (child == 0) {
    leave_control_group();
    give_up_identity(name);
    work(program.get());
    ::_exit(0);
  }
  const int problem = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = problem;
  if (child < 0) return nullptr;
  const auto pid = static_cast<pid_t>(child);
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  return std::unique_ptr<OutlivingProcess>(
      new OutlivingProcess(std::move(program), std::move(process), pid));
}

OutlivingProcess::OutlivingProcess(UniqueFd program, UniqueFd process, pid_t pid)
    : program_(std::move(program)), process_(std::move(process)), pid_(pid) {}

OutlivingProcess::~OutlivingProcess() {
  if (!ended_) ::waitpid(pid_, nullptr, __WALL | WNOHANG);
}

void OutlivingProcess::end() {
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  ended_ = true;
}

}  // namespace dynprof
