#include "symbolizer/export/graphviz.h"

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

namespace dynprof {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCannotRun = 127;

// A program that is killed and waited for unless that was done before.
class Child {
 public:
  Child(std::string name, pid_t pid) : name_(std::move(name)), pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  Result<void> wait_until(Clock::time_point deadline) {
    for (;;) {
      int status = 0;
      pid_t done = ::waitpid(pid_, &status, WNOHANG);
      if (done < 0 && errno != EINTR) return errno_error("cannot wait for " + name_);
      if (done == pid_) {
        pid_ = -1;
        return check(status);
      }
      if (Clock::now() >= deadline) return error(name_ + " took too long and was stopped");
      timespec pause{0, 5'000'000};
      ::nanosleep(&pause, nullptr);
    }
  }

 private:
  Result<void> check(int status) const {
    if (WIFSIGNALED(status)) {
      return error(fmt::format("{} was ended by signal {}", name_, WTERMSIG(status)));
    }
    int code = WEXITSTATUS(status);
    if (code == kCannotRun) return error(name_ + " could not be started");
    if (code != 0) return error(fmt::format("{} failed with status {}", name_, code));
    return {};
  }

  std::string name_;
  pid_t pid_;
};

// Between fork and exec only async-signal-safe calls.
[[noreturn]] void become(const char* program, char* const* arguments, int input, int output,
                         int null, std::uint64_t output_bytes) {
  if (::dup2(input, 0) < 0 || ::dup2(output, 1) < 0 || ::dup2(null, 2) < 0) ::_exit(kCannotRun);
  ::close_range(3, ~0u, 0);
  for (int number : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGXFSZ}) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const rlimit size{output_bytes, output_bytes}, no_core{0, 0};
  ::setrlimit(RLIMIT_FSIZE, &size);
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::execv(program, arguments);
  ::_exit(kCannotRun);
}

// Descriptors 0 to 2 may be closed in our own process; what a child gets must not be among them, or
// one dup2 would overwrite another's source.
UniqueFd above_stdio(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

// A file in memory with this text, to be read from its beginning.
Result<UniqueFd> memory_file(std::string_view text) {
  UniqueFd file(::memfd_create("dynprof-graph", MFD_CLOEXEC));
  if (!file) return errno_error("cannot hold the call graph in memory");
  while (!text.empty()) {
    const ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return errno_error("cannot hold the call graph in memory");
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return errno_error("cannot read the call graph back");
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

Result<std::string> find_dot(std::string_view path) {
  std::string dot = find_program(path, "dot");
  if (!dot.empty()) return dot;
  return error("no call graphs: dot (package graphviz) not found in PATH", "apt install graphviz");
}

Result<void> draw_svg(const std::string& dot, std::string_view graph, int svg_fd,
                      const DrawLimits& limits) {
  UniqueFd opened(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!opened) return errno_error("cannot open /dev/null");
  ASSIGN_OR_RETURN(const UniqueFd text, memory_file(graph));
  UniqueFd null = above_stdio(opened.get()), svg = above_stdio(svg_fd);
  UniqueFd input = above_stdio(text.get());
  if (!null || !svg || !input) return errno_error("cannot copy a descriptor");

  std::string name = "dot", format = "-Tsvg";
  char* const arguments[] = {name.data(), format.data(), nullptr};
  const Clock::time_point deadline = Clock::now() + limits.time;
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("cannot start dot");
  if (pid == 0)
    become(dot.c_str(), arguments, input.get(), svg.get(), null.get(), limits.output_bytes);
  return Child("dot", pid).wait_until(deadline);
}

}  // namespace dynprof
