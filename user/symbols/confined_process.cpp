#include "user/symbols/confined_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRequestFd = 3;
constexpr int kFirstFree = 10;  // descriptors to hand over must not be among those they become

// The arguments of posix_spawn; releases them.
class SpawnPlan {
 public:
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  void give(int fd, int as) { ::posix_spawn_file_actions_adddup2(&actions_, fd, as); }

  // Returns an errno value. Control-C is meant for us: it gets a process group of its own.
  int start(const std::string& program, const std::vector<std::string>& arguments, pid_t& pid) {
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, kRequestFd + 1);
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    std::vector<std::string> words = arguments;
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    char locale[] = "LC_ALL=C";
    char* environment[] = {locale, nullptr};
    return ::posix_spawn(&pid, program.c_str(), &actions_, &attributes_, pointers.data(),
                         environment);
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

UniqueFd out_of_the_way(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFree)); }

UniqueFd as_file(std::span<const std::uint8_t> bytes) {
  UniqueFd file(::memfd_create("request", MFD_CLOEXEC));
  for (std::size_t done = 0; file && done < bytes.size();) {
    const ssize_t wrote = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return UniqueFd();
    done += static_cast<std::size_t>(wrote);
  }
  if (file) ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

// Reads until the other side closes; the sentence says why it did not come to that.
std::string read_output(int fd, Clock::time_point deadline, std::size_t most,
                        std::vector<std::uint8_t>& output) {
  std::array<std::uint8_t, 1 << 16> buffer;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return "took too long";
    pollfd ready{fd, POLLIN, 0};
    const int polled = ::poll(&ready, 1, static_cast<int>(std::min<long>(left.count(), 1000)));
    if (polled < 0 && errno != EINTR) return "could not be waited for";
    if (polled <= 0) continue;
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return "could not be read from";
    if (got == 0) return {};
    if (output.size() + static_cast<std::size_t>(got) > most) return "wrote too much";
    output.insert(output.end(), buffer.begin(), buffer.begin() + got);
  }
}

// It has closed its output, so it is about to end; a hostile one that is not gets until the
// deadline.
bool ended(pid_t pid, Clock::time_point deadline, int& status) {
  while (true) {
    const pid_t done = ::waitpid(pid, &status, WNOHANG);
    if (done == pid) return true;
    if (done < 0 && errno != EINTR) return false;
    if (Clock::now() >= deadline) return false;
    timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace

ConfinedRun run_confined(const std::string& program, const std::vector<std::string>& arguments,
                         int input, std::span<const std::uint8_t> request,
                         const ConfinedLimits& limits) {
  ConfinedRun run;
  const Clock::time_point deadline = Clock::now() + limits.wall;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    run.problem = "could not be started: " + errno_text(errno);
    return run;
  }
  UniqueFd output(ends[0]), small_write_end(ends[1]);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd asked = as_file(request);
  UniqueFd given[] = {out_of_the_way(input), out_of_the_way(small_write_end.get()),
                      out_of_the_way(null.get()), out_of_the_way(asked.get())};
  small_write_end.reset();
  SpawnPlan plan;
  for (int i = 0; i <= kRequestFd; ++i) {
    if (!given[i]) {
      run.problem = "could not be started: no descriptor is left";
      return run;
    }
    plan.give(given[i].get(), i);
  }
  pid_t pid = 0;
  if (const int failure = plan.start(program, arguments, pid); failure != 0) {
    run.problem = "could not be started: " + errno_text(failure);
    return run;
  }
  for (UniqueFd& fd : given) fd.reset();
  run.problem = read_output(output.get(), deadline, limits.output_bytes, run.output);
  int status = 0;
  if (!run.problem.empty() || !ended(pid, deadline, status)) {
    if (run.problem.empty()) run.problem = "took too long";
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return run;
  }
  if (WIFEXITED(status)) {
    run.status = WEXITSTATUS(status);
  } else if (WTERMSIG(status) == SIGXCPU) {
    run.problem = "took too long";
  } else {
    run.problem = fmt::format("was ended by signal {}", WTERMSIG(status));
  }
  return run;
}

}  // namespace dynprof
