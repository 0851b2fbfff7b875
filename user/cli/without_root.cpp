#include "user/cli/without_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iterator>

#include "symbolizer/base/file_output.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr int kDeepestDirectory = 4;  // DIR/generated/0_0 is the deepest we make

volatile sig_atomic_t signalled_child = 0;

// A terminal sends its signals to the child as well.
void pass_on(int signal, siginfo_t* info, void*) {
  if (info->si_code != SI_KERNEL && signalled_child > 0) ::kill(signalled_child, signal);
}

// While the child works it is the child that a signal ends: what follows is to be done in any case.
class SignalsForChild {
 public:
  // From here on they wait; before fork().
  SignalsForChild() {
    sigset_t held;
    sigemptyset(&held);
    for (const int number : kNumbers) sigaddset(&held, number);
    ::sigprocmask(SIG_BLOCK, &held, &mask_);
  }
  void in_child() const { ::sigprocmask(SIG_SETMASK, &mask_, nullptr); }
  void in_parent(pid_t child) {
    signalled_child = child;
    struct sigaction action = {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO;
    for (std::size_t i = 0; i < std::size(kNumbers); i++)
      ::sigaction(kNumbers[i], &action, &before_[i]);
    ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
    installed_ = true;
  }
  ~SignalsForChild() {
    signalled_child = 0;
    for (std::size_t i = 0; installed_ && i < std::size(kNumbers); i++)
      ::sigaction(kNumbers[i], &before_[i], nullptr);
    ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  SignalsForChild(const SignalsForChild&) = delete;
  SignalsForChild& operator=(const SignalsForChild&) = delete;

 private:
  static constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGHUP};
  sigset_t mask_{};
  struct sigaction before_[std::size(kNumbers)] = {};
  bool installed_ = false;
};

// One thread only: fork() copies no other.
Result<int> run_as_user(const UserIdentity& user, Keep keep, const std::function<int()>& work) {
  std::fflush(nullptr);  // or both processes write it
  const pid_t parent = ::getpid();
  SignalsForChild signals;
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("cannot start a process without root's rights");
  if (pid == 0) {
    signals.in_child();
    int status = 1;
    auto left = become_user(user, keep);
    // A change of user clears it, so it comes second; the parent may have ended before.
    if (left && ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
      left = errno_error("cannot set PR_SET_PDEATHSIG");
    if (!left)
      print_error(left.error());
    else if (::getppid() == parent)
      status = work();
    std::fflush(nullptr);
    ::_exit(status);
  }
  signals.in_parent(pid);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return errno_error(fmt::format("cannot wait for process {}", pid));
  if (WIFSIGNALED(status))
    return error(fmt::format("process {}, which makes the files, was killed by signal {}", pid,
                             WTERMSIG(status)));
  return WEXITSTATUS(status);
}

// Gives what `from` owns below `directory` to root; returns how much of it could not be given. A file
// with another name elsewhere, or one of another user, was not made here and is left alone.
std::size_t take_back(int directory, uid_t from, int depth) {
  if (::fchown(directory, 0, 0) != 0) return 1;
  UniqueFd copy(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* entries = copy ? ::fdopendir(copy.get()) : nullptr;
  if (!entries) return 1;
  copy.release();
  std::size_t failed = 0;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    UniqueFd found(::openat(directory, entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!found || ::fstat(found.get(), &status) != 0) {
      failed++;
    } else if (status.st_uid != from) {
      continue;
    } else if (S_ISDIR(status.st_mode) && depth < kDeepestDirectory) {
      UniqueFd below(
          ::openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      failed += below ? take_back(below.get(), from, depth + 1) : 1;
    } else if (!S_ISREG(status.st_mode) || status.st_nlink != 1 ||
               ::fchownat(found.get(), "", 0, 0, AT_EMPTY_PATH) != 0) {
      failed++;
    }
  }
  ::closedir(entries);
  return failed;
}

}  // namespace

Result<int> write_without_root(const OutputDirectory& directory, Terminal& terminal,
                               const std::function<int()>& work) {
  if (!is_plain_root()) {
    std::string note;
    TRY(leave_root(note));
    if (!note.empty()) terminal.line("note: " + note);
    return work();
  }
  const UserIdentity user = unprivileged_user();
  const std::string shown = escape_terminal(directory.path());
  if (::fchown(directory.fd(), user.uid, user.gid) != 0)
    return errno_error(fmt::format("cannot give directory {} to uid {}", shown, user.uid));
  auto status = run_as_user(user, Keep::kNothing, work);
  if (const std::size_t failed = take_back(directory.fd(), user.uid, 0); failed > 0)
    terminal.line(fmt::format("warning: {} files of {} still belong to uid {}: chown -R root: {}",
                              failed, shown, user.uid, shown));
  return status;
}

Result<int> write_file_without_root(const std::string& path, Keep keep,
                                    const std::function<int(int file)>& work) {
  ASSIGN_OR_RETURN(auto file, OutputFile::create(path));  // taken away unless it is finished
  ASSIGN_OR_RETURN(const int status,
                   run_as_user(unprivileged_user(), keep, [&] { return work(file->fd()); }));
  if (status == 0) TRY(file->finish());
  return status;
}

}  // namespace dynprof
