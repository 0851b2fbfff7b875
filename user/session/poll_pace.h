// When the thread that reads events looks for them. Few events wake it (docs/development/architecture.md, "Waking user
// space"): a wake-up costs the thread that sends the event some 40 us of its time, more than a sample
// (docs/development/overhead.md). Samples come at known times, so it looks shortly after the next one where names may be
// gone soon.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <map>

#include "bpf/counters.h"
#include "bpf/events.h"

namespace dynprof {

class PollPace {
 public:
  static constexpr std::uint64_t kCalmNs = 20'000'000;
  static constexpr std::uint64_t kHurriedNs = 5'000'000;
  // The shortest wait is half a period, within these.
  static constexpr std::uint64_t kLeastNs = 250'000, kEnoughNs = 2'000'000;
  static constexpr std::uint64_t kAfterSampleNs = 100'000;  // it is sent by then
  static constexpr std::uint64_t kHurriedForNs = 100'000'000;
  static constexpr std::uint64_t kFollowedForNs = 1'000'000'000;

  // 0: samples come at no known times.
  explicit PollPace(std::uint64_t sample_period_ns)
      : period_ns_(sample_period_ns),
        shortest_ns_(std::clamp(sample_period_ns / 2, kLeastNs, kEnoughNs)) {}

  // Where a sample shows what is new the next ones probably do too, on the CPUs that had samples lately.
  void sampled(const dp_sample& sample) {
    const std::uint64_t time_ns = sample.header.time_ns;
    if (period_ns_ != 0) sampled_ns_[sample.header.cpu] = time_ns;
    if (!shows_new(sample)) return;
    if (period_ns_ == 0) hurry(time_ns);
    follow_until_ns_ = time_ns + kFollowedForNs;
  }
  // The stack of a wait.
  void waited(const dp_sample& stack) {
    if (shows_new(stack)) hurry(stack.header.time_ns);
  }
  // Something new was seen that is no stack.
  void hurry(std::uint64_t time_ns) { hurry_until_ns_ = time_ns + kHurriedForNs; }

  // From `now_ns` on.
  std::uint64_t wait_ns(std::uint64_t now_ns) const {
    std::uint64_t wait = now_ns < hurry_until_ns_ ? kHurriedNs : kCalmNs;
    if (now_ns >= follow_until_ns_) return wait;
    for (const auto& [cpu, time_ns] : sampled_ns_)
      if (now_ns < time_ns + kFollowedForNs) wait = std::min(wait, until_next(time_ns, now_ns));
    return std::max(wait, shortest_ns_);
  }

 private:
  // A code object that has not been read, whose memory may soon be freed, or a library that was just mapped.
  static bool shows_new(const dp_sample& sample) {
    return (sample.flags & DP_SAMPLE_NEW_CODE) != 0 ||
           sample.native_end == DP_COUNT_NATIVE_NO_MAPPING;
  }
  std::uint64_t until_next(std::uint64_t sampled_ns, std::uint64_t now_ns) const {
    const std::uint64_t sent_ns = sampled_ns + kAfterSampleNs;
    return now_ns < sent_ns ? sent_ns - now_ns : period_ns_ - (now_ns - sent_ns) % period_ns_;
  }

  std::uint64_t period_ns_, shortest_ns_;
  std::uint64_t hurry_until_ns_ = 0, follow_until_ns_ = 0;
  std::map<std::uint32_t, std::uint64_t> sampled_ns_;  // by CPU: its last sample
};

// The rings wake it as well, where they fill up. Less than a second.
inline void wait_for_events(int ring_fd, std::uint64_t at_most_ns) {
  pollfd ring = {ring_fd, POLLIN, 0};
  const timespec limit = {.tv_sec = 0, .tv_nsec = static_cast<long>(at_most_ns)};
  ppoll(&ring, 1, &limit, nullptr);
}

}  // namespace dynprof
