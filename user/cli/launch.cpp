#include "user/cli/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "symbolizer/base/text.h"
#include "user/cli/stop_signals.h"
#include "user/privileges/user_identity.h"

namespace dynprof {
namespace {

// In the child, between fork and exec: system calls only.
[[noreturn]] void run_child(int go, int failure, char* const* arguments,
                            const std::optional<UserIdentity>& user) {
  char byte = 0;
  if (read(go, &byte, 1) != 1) _exit(127);  // the parent gave up
  StopSignals::restore();
  if (user &&
      (setgroups(user->groups.size(), user->groups.data()) ||
       setresgid(user->gid, user->gid, user->gid) || setresuid(user->uid, user->uid, user->uid)))
    _exit(127);
  execvp(arguments[0], arguments);
  int value = errno;
  (void)!write(failure, &value, sizeof value);
  _exit(127);
}

}  // namespace

Result<LaunchedCommand> LaunchedCommand::start(const std::vector<std::string>& command) {
  int go[2], failure[2];
  if (pipe2(go, O_CLOEXEC)) return errno_error("cannot make a pipe");
  UniqueFd go_read(go[0]), go_write(go[1]);
  if (pipe2(failure, O_CLOEXEC)) return errno_error("cannot make a pipe");
  UniqueFd failure_read(failure[0]), failure_write(failure[1]);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  auto user = user_behind_sudo();  // reads files: before the fork
  pid_t pid = fork();
  if (pid < 0) return errno_error("cannot start a process");
  if (pid == 0) {
    close(go_write.release());
    run_child(go_read.get(), failure_write.get(), arguments.data(), user);
  }
  LaunchedCommand launched(pid, std::move(go_write), std::move(failure_read));
  launched.name_ = command[0];
  return launched;
}

LaunchedCommand::LaunchedCommand(LaunchedCommand&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      go_(std::move(other.go_)),
      failure_(std::move(other.failure_)),
      name_(std::move(other.name_)) {}

LaunchedCommand::~LaunchedCommand() {
  if (pid_ == 0) return;
  go_.reset();  // never released: it ends by itself
  wait();
}

void LaunchedCommand::terminate() {
  if (pid_) kill(pid_, SIGTERM);
}

Result<void> LaunchedCommand::release() {
  if (write(go_.get(), "", 1) != 1) return errno_error("cannot start the command");
  go_.reset();
  int value = 0;
  ssize_t n = read(failure_.get(), &value, sizeof value);
  failure_.reset();
  if (n == static_cast<ssize_t>(sizeof value)) {
    wait();
    Error e = error(fmt::format("cannot execute {}: {}", escape_terminal(name_), errno_text(value)),
                    "check the command after --");
    e.errno_value = value;
    return e;
  }
  return {};
}

int LaunchedCommand::wait() {
  int status = 0;
  pid_t pid = pid_;
  pid_ = 0;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return 1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace dynprof
