#include "symbolizer/export/callgraph.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <vector>

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
  Child(Child&& other) noexcept
      : name_(std::move(other.name_)), pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
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

Result<Child> start(const std::string& name, const std::string& program,
                    std::vector<std::string> arguments, int input, int output, int null,
                    const CallgraphOptions& options) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t pid = ::fork();
  if (pid < 0) return errno_error("cannot start " + name);
  if (pid == 0) become(program.c_str(), pointers.data(), input, output, null, options.output_bytes);
  return Child(name, pid);
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

Result<CallgraphTools> find_callgraph_tools(std::string_view path) {
  CallgraphTools tools{find_program(path, "gprof2dot"), find_program(path, "dot")};
  if (!tools.gprof2dot.empty() && !tools.dot.empty()) return tools;
  const char* missing = !tools.gprof2dot.empty() ? "dot (package graphviz)"
                        : !tools.dot.empty()     ? "gprof2dot"
                                                 : "gprof2dot and dot";
  return error(fmt::format("no call graphs: {} not found in PATH", missing),
               "pip install gprof2dot; apt install graphviz");
}

Result<void> write_callgraph(const CallgraphTools& tools, int profile_fd, int svg_fd,
                             const CallgraphOptions& options) {
  UniqueFd opened(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!opened) return errno_error("cannot open /dev/null");
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  UniqueFd first_end(ends[0]), second_end(ends[1]);
  UniqueFd null = above_stdio(opened.get()), svg = above_stdio(svg_fd);
  UniqueFd profile = above_stdio(profile_fd);
  UniqueFd read_end = above_stdio(first_end.get()), write_end = above_stdio(second_end.get());
  if (!null || !svg || !profile || !read_end || !write_end)
    return errno_error("cannot copy a descriptor");
  first_end.reset();
  second_end.reset();

  const Clock::time_point deadline = Clock::now() + options.timeout;
  // torch/_dynamo/convert_frame.py, cprofile_wrapper, but for dot's -o: it writes to our file.
  ASSIGN_OR_RETURN(
      Child gprof2dot,
      start("gprof2dot", tools.gprof2dot,
            {"gprof2dot", "-f", "pstats", "--node-label=total-time-percentage",
             "--node-label=self-time-percentage", "--node-label=total-time", "/dev/stdin"},
            profile.get(), write_end.get(), null.get(), options));
  ASSIGN_OR_RETURN(Child dot, start("dot", tools.dot, {"dot", "-Tsvg"}, read_end.get(), svg.get(),
                                    null.get(), options));
  read_end.reset();
  write_end.reset();
  // Either's failure makes the other fail or not, so both have their say.
  Result<void> first = gprof2dot.wait_until(deadline), second = dot.wait_until(deadline);
  if (!first && !second) return error(first.error().what + "; " + second.error().what);
  if (!first) return first;
  return second;
}

}  // namespace dynprof
