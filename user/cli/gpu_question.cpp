#include "user/cli/gpu_question.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string_view>

#include "user/cli/standard_streams.h"
#include "user/cli/stop_signals.h"
#include "user/gpu/library_loader.h"

namespace dynprof {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr int kPollMs = 100;

// Not in the background, where reading would stop us.
bool somebody_can_answer() {
  return isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1 &&
         tcgetpgrp(STDIN_FILENO) == getpgrp();
}

bool answered_yes() {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!StopSignals::requested() && std::chrono::steady_clock::now() < until) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, kPollMs) <= 0) continue;
    std::array<char, 64> line;
    const ssize_t got = read(STDIN_FILENO, line.data(), line.size());
    const std::string_view answer(line.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    return answer == "y\n" || answer == "yes\n";
  }
  print_err("\n");
  return false;
}

}  // namespace

bool asked_to_load_library(const SessionOptions& options) {
  if (options.gpu.mode != GpuMode::kAuto || options.passive || options.launched ||
      !somebody_can_answer())
    return false;
  const auto pids = find_loadable(options.targets, options.children);
  if (pids.empty()) return false;
  const std::string whom = pids.size() == 1 ? fmt::format("process {}", pids[0])
                                            : fmt::format("{} processes", pids.size());
  print_err(fmt::format(
      "Load libdynprof_cupti.so into {} for times on the GPU? It stays there, and launches take "
      "about a microsecond longer until the job ends. [y/N, N after {} s] ",
      whom, kPatience.count()));
  return answered_yes();
}

}  // namespace dynprof
