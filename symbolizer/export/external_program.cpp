#include "symbolizer/export/external_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "symbolizer/base/text.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/base/write_all.h"

namespace dynprof {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCannotRun = 127;  // as the shell has it

// A program in a process group of its own. The group is killed when the program has ended or its time is up: what it
// started does not outlive it.
class Child {
 public:
  Child(std::string name, pid_t pid) : name_(std::move(name)), pid_(pid) {
    ::setpgid(pid_, pid_);  // the child does so too: whichever comes first
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(); }

  Result<int> wait_until(Clock::time_point deadline) {
    for (;;) {
      siginfo_t ended{};
      // Not reaped yet: until then its number, which is that of the group, belongs to nothing else.
      const int done =
          ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT);
      if (done < 0 && errno != EINTR) return errno_error("cannot wait for " + name_);
      if (done == 0 && ended.si_pid == pid_) return check(end());
      if (Clock::now() >= deadline) return error(name_ + " took too long and was stopped");
      timespec pause{0, 5'000'000};
      ::nanosleep(&pause, nullptr);
    }
  }

 private:
  // Kills the group and reaps the program; its status, if it had not been reaped before.
  int end() {
    int status = 0;
    if (pid_ <= 0) return status;
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);  // should it have no group of its own
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

  Result<int> check(int status) const {
    if (WIFSIGNALED(status)) {
      return error(fmt::format("{} was ended by signal {}", name_, WTERMSIG(status)));
    }
    int code = WEXITSTATUS(status);
    if (code == kCannotRun) return error(name_ + " could not be started");
    return code;
  }

  std::string name_;
  pid_t pid_;
};

// Between fork and exec only async-signal-safe calls.
[[noreturn]] void become(const char* program, char* const* arguments, int input, int output,
                         int null, const ProgramLimits& limits) {
  if (::dup2(input, 0) < 0 || ::dup2(output, 1) < 0 || ::dup2(null, 2) < 0) ::_exit(kCannotRun);
  ::close_range(3, ~0u, 0);
  ::setpgid(0, 0);
  for (int number : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGXFSZ}) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const rlimit size{limits.output_bytes, limits.output_bytes}, no_core{0, 0};
  const rlimit memory{limits.memory_bytes, limits.memory_bytes};
  ::setrlimit(RLIMIT_FSIZE, &size);
  if (limits.memory_bytes != 0) ::setrlimit(RLIMIT_AS, &memory);
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::execv(program, arguments);
  ::_exit(kCannotRun);
}

// Descriptors 0 to 2 may be closed in our own process; what a child gets must not be among them, or
// one dup2 would overwrite another's source.
UniqueFd above_stdio(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

// A file in memory, at its begin.
Result<UniqueFd> file_of(std::string_view text) {
  UniqueFd file(::memfd_create("dynprof-filter", MFD_CLOEXEC));
  if (!file) return errno_error("cannot hold a text in memory");
  if (!write_all(file.get(), text)) return errno_error("cannot hold a text in memory");
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return errno_error("cannot read a text back");
  return file;
}

}  // namespace

std::string find_program(std::string_view path, std::string_view name) {
  while (!path.empty()) {
    std::size_t colon = path.find(':');
    std::string_view directory = path.substr(0, colon);
    path = colon == std::string_view::npos ? std::string_view() : path.substr(colon + 1);
    // The working directory may be anybody's.
    if (directory.empty() || directory[0] != '/') continue;
    std::string file = fmt::format("{}/{}", directory, name);
    struct stat info {};
    if (::stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        ::access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return {};
}

Result<int> run_filter(const std::string& program, const std::vector<std::string>& arguments,
                       std::string_view input, int output_fd, const ProgramLimits& limits) {
  UniqueFd opened(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!opened) return errno_error("cannot open /dev/null");
  ASSIGN_OR_RETURN(const UniqueFd text, file_of(input));
  UniqueFd null = above_stdio(opened.get()), output = above_stdio(output_fd);
  UniqueFd in = above_stdio(text.get());
  if (!null || !output || !in) return errno_error("cannot copy a descriptor");

  const std::string name = escape_terminal(base_name(program));
  // The whole path comes first: by it the Python of a virtual environment finds its packages.
  std::vector<std::string> copies{program};
  copies.insert(copies.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const Clock::time_point deadline = Clock::now() + limits.time;
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("cannot start " + name);
  if (pid == 0) become(program.c_str(), argv.data(), in.get(), output.get(), null.get(), limits);
  return Child(name, pid).wait_until(deadline);
}

}  // namespace dynprof
