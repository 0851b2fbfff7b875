#include "user/target/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
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

// With more threads than CPUs some are preempted between their readings of the two clocks.
TEST(Clock, APreemptionBetweenTheClocksDoesNotChangeTheOffset) {
  constexpr int kTimes = 300'000;
  constexpr std::int64_t kToleranceNs = 100'000;
  const std::int64_t expected = realtime_offset_ns();
  std::vector<std::int64_t> worst(2 * std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::jthread> threads;
  for (std::int64_t& mine : worst)
    threads.emplace_back([&mine, expected] {
      for (int i = 0; i < kTimes; ++i)
        mine = std::max(mine, std::abs(realtime_offset_ns() - expected));
    });
  threads.clear();
  EXPECT_LT(*std::max_element(worst.begin(), worst.end()), kToleranceNs);
}

}  // namespace
}  // namespace dynprof
