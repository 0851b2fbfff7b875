#include "user/gpu/launch_rate.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

TEST(LaunchRate, NothingWithinASecond) {
  LaunchRate rate;
  EXPECT_EQ(rate.per_second(), 0u);
  for (std::uint64_t i = 0; i < 1000; ++i) rate.add(7 + i);
  EXPECT_EQ(rate.per_second(), 0u);
}

TEST(LaunchRate, OfAllLaunchesFromTheFirstToTheLast) {
  LaunchRate rate;
  for (std::uint64_t i = 0; i <= 2000; ++i) rate.add(7 + i * kMs);
  EXPECT_EQ(rate.per_second(), 1000u);
  rate.add(7);  // events of two CPUs come in no order
  EXPECT_EQ(rate.per_second(), 1001u);
}

}  // namespace
}  // namespace dynprof
