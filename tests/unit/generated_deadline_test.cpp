#include <gtest/gtest.h>

#include <thread>

#include "user/generated/deadline.h"

namespace dynprof {
namespace {

using namespace std::chrono_literals;

TEST(LookDeadline, WaitingForACpuDoesNotCount) {
  const LookDeadline deadline(20ms, 1h);
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(over(deadline));
  const auto begin = std::chrono::steady_clock::now();
  while (!over(deadline)) ASSERT_LT(std::chrono::steady_clock::now() - begin, 60s);
}

TEST(LookDeadline, TheClockEndsItToo) {
  const LookDeadline deadline(1h, 20ms);
  EXPECT_FALSE(over(LookDeadline(1h, 1h)));
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(over(deadline));
}

}  // namespace
}  // namespace dynprof
