#include "user/kernel/closing_process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace dynprof {
namespace {

constexpr const char* kName = "fd-closer";
constexpr int kPatienceMs = 30'000;
// At the same time, after the program was killed.
constexpr int kClosers = 32;
constexpr rlim_t kMaxDescriptors = 1 << 20;
// Of the root control groups, by which whole groups are killed: version 2 alone, version 2 beside version 1, systemd's own.
constexpr const char* kRootGroups[] = {"/sys/fs/cgroup/cgroup.procs",
                                       "/sys/fs/cgroup/unified/cgroup.procs",
                                       "/sys/fs/cgroup/systemd/cgroup.procs"};

// Numbers in the shared table. None: the sender waits for an answer.
struct Request {
  std::int32_t count = 0;
  std::array<std::int32_t, 64> descriptors = {};
};

// Shares the table of descriptors, nothing else.
long copy_of_this_process(int exit_signal) {
  return ::syscall(SYS_clone, CLONE_FILES | exit_signal, nullptr, nullptr, nullptr, 0);
}

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

void give_up_identity() {
  ::setsid();
  ::prctl(PR_SET_NAME, kName);
  // argv[0], which nothing here reads any more.
  char* command = ::program_invocation_name;
  const std::size_t room = ::strlen(command);
  std::fill_n(command, room, '\0');
  std::copy_n(kName, std::min(room, ::strlen(kName)), command);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  ::syscall(SYS_capset, &header, none);
}

// Each by a process of its own: most of the time is spent waiting.
void close_together(std::span<const std::int32_t> descriptors) {
  for (const int descriptor : descriptors) {
    const long child = copy_of_this_process(SIGCHLD);
    if (child > 0) continue;
    ::close(descriptor);
    if (child == 0) ::_exit(0);
  }
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

// Of the program, which is gone. The end of this process would close them one after the other, and take a tenth of a second for
// each uprobe.
void close_all_together() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kMaxDescriptors));
  for (int first = 0; first < kClosers; first++) {
    const long child = copy_of_this_process(SIGCHLD);
    if (child < 0) break;  // the end of this process closes the rest
    if (child > 0) continue;
    for (int descriptor = first; descriptor < end; descriptor += kClosers) ::close(descriptor);
    ::_exit(0);
  }
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

}  // namespace

// Ends when the program has ended.
void ClosingProcess::serve(const Channel& channel) {
  leave_control_group();
  give_up_identity();
  std::array<pollfd, 2> events = {
      {{channel.program.get(), POLLIN, 0}, {channel.theirs.get(), POLLIN, 0}}};
  for (;;) {
    if (::poll(events.data(), events.size(), -1) < 0 && errno != EINTR) break;
    // Not on an error: if the program were still there, it would lose its descriptors.
    if (events[0].revents & POLLIN) close_all_together();
    if (events[0].revents != 0) break;
    Request request;
    const ssize_t got = ::recv(channel.theirs.get(), &request, sizeof request, MSG_DONTWAIT);
    if (got != sizeof request) continue;
    close_together(std::span(request.descriptors).first(static_cast<std::size_t>(request.count)));
    if (request.count == 0) (void)::send(channel.theirs.get(), "", 1, MSG_NOSIGNAL);
  }
  ::_exit(0);
}

ClosingProcess::ClosingProcess(Channel channel, UniqueFd process, pid_t pid)
    : channel_(std::move(channel)), process_(std::move(process)), pid_(pid) {}

Result<std::unique_ptr<ClosingProcess>> ClosingProcess::start() {
  const auto fail = [] {
    return errno_error("cannot start the process that removes probes if dynprof-bpf is killed",
                       "--passive sets no probes");
  };
  Channel channel;
  // Readable once all threads of this program are gone, which is after they let go of its descriptors.
  channel.program.reset(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!channel.program) return fail();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail();
  channel.ours.reset(ends[0]);
  channel.theirs.reset(ends[1]);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  // No signal when it ends: only ~ClosingProcess waits for a child of that kind.
  const long child = copy_of_this_process(0);
  if (child == 0) serve(channel);
  const int problem = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = problem;
  if (child < 0) return fail();
  const auto pid = static_cast<pid_t>(child);
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  return std::unique_ptr<ClosingProcess>(
      new ClosingProcess(std::move(channel), std::move(process), pid));
}

void ClosingProcess::close(std::vector<UniqueFd> descriptors) {
  for (std::size_t done = 0; done < descriptors.size();) {
    Request request;
    const std::size_t count = std::min(descriptors.size() - done, request.descriptors.size());
    for (std::size_t i = 0; i < count; i++) request.descriptors[i] = descriptors[done + i].get();
    request.count = static_cast<std::int32_t>(count);
    // Where that fails they are closed here.
    const bool sent = ::send(channel_.ours.get(), &request, sizeof request,
                             MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof request;
    for (std::size_t i = 0; i < count && sent; i++) descriptors[done + i].release();
    done += count;
  }
}

bool ClosingProcess::wait() {
  const Request none;
  answers_ = answers_ && ::send(channel_.ours.get(), &none, sizeof none,
                                MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof none;
  if (!answers_) return false;
  std::array<pollfd, 2> events = {{{channel_.ours.get(), POLLIN, 0}, {process_.get(), POLLIN, 0}}};
  while (::poll(events.data(), events.size(), kPatienceMs) < 0 && errno == EINTR) {
  }
  char answer = 0;
  answers_ = ::recv(channel_.ours.get(), &answer, 1, MSG_DONTWAIT) == 1;
  return answers_;
}

ClosingProcess::~ClosingProcess() {
  // Killed while it closes a probe, it would leave that behind.
  const bool idle = wait();
  if (idle) ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, __WALL | (idle ? 0 : WNOHANG)) < 0 && errno == EINTR) {
  }
}

}  // namespace dynprof
