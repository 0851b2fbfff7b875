#include "user/session/stuck_watch.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <utility>

#include "user/preflight/capabilities.h"
#include "user/target/awaiting_target.h"
#include "user/target/clock.h"

namespace dynprof {
namespace {

constexpr std::chrono::milliseconds kStep{500};

}  // namespace

StuckWatch::StuckWatch(std::function<void(const std::string& sentence)> end,
                       std::chrono::milliseconds patience)
    : end_(std::move(end)), patience_(patience) {
  // Signals are for the thread that waits for them.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StuckWatch::~StuckWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void StuckWatch::watch() {
  keep_only_reading();  // more than it needs
  const auto patience = static_cast<std::uint64_t>(std::chrono::nanoseconds(patience_).count());
  // Seen twice, since the machine itself may have stood still.
  std::array<std::uint64_t, AwaitingTarget::kMaxThreads> late{};
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, std::min(kStep, patience_), [this] { return stop_; })) {
    const std::uint64_t now = monotonic_ns();
    for (std::size_t i = 0; i < late.size(); ++i) {
      const AwaitingTarget::Wait& wait = AwaitingTarget::waits()[i];
      const std::uint64_t since = wait.since_ns.load(std::memory_order_acquire);
      if (since == 0 || now < since + patience) continue;
      if (std::exchange(late[i], since) != since) continue;
      const pid_t pid = wait.pid.load(std::memory_order_relaxed);
      return end_(fmt::format("reading {} does not return",
                              pid == 0 ? "a file of a process" : fmt::format("process {}", pid)));
    }
  }
}

}  // namespace dynprof
