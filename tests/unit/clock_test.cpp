#include "user/target/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace dynprof {
namespace {

TEST(Clock, TheOffsetPlacesAMonotonicTimeBetweenTwoReadingsOfRealtime) {
  constexpr std::int64_t kToleranceNs = 100'000;
  const auto before = static_cast<std::int64_t>(clock_ns(CLOCK_REALTIME));
  const auto from = static_cast<std::int64_t>(monotonic_ns());
  const std::int64_t offset = realtime_offset_ns();
  const auto until = static_cast<std::int64_t>(monotonic_ns());
  const auto after = static_cast<std::int64_t>(clock_ns(CLOCK_REALTIME));
  EXPECT_GE(from + offset, before - kToleranceNs);
  EXPECT_LE(until + offset, after + kToleranceNs);
}

// With more threads than CPUs some are preempted between their readings of the two clocks. Meanwhile CLOCK_REALTIME may
// be set, in steps of 0.5 ms on some virtual machines: the offset then lies between those before and behind.
TEST(Clock, APreemptionBetweenTheClocksDoesNotChangeTheOffset) {
  constexpr int kTimes = 300'000;
  constexpr std::int64_t kToleranceNs = 100'000;
  const std::int64_t before = realtime_offset_ns();
  struct Range {
    std::int64_t least, most;
  };
  std::vector<Range> found(2 * std::max(1U, std::thread::hardware_concurrency()), {before, before});
  std::vector<std::jthread> threads;
  for (Range& mine : found)
    threads.emplace_back([&mine] {
      for (int i = 0; i < kTimes; ++i) {
        const std::int64_t offset = realtime_offset_ns();
        mine = {std::min(mine.least, offset), std::max(mine.most, offset)};
      }
    });
  threads.clear();
  const std::int64_t after = realtime_offset_ns();
  for (const Range& range : found) {
    EXPECT_GT(range.least, std::min(before, after) - kToleranceNs);
    EXPECT_LT(range.most, std::max(before, after) + kToleranceNs);
  }
}

}  // namespace
}  // namespace dynprof
