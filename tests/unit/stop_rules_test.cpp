#include "user/session/stop_rules.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

TEST(StopRules, GoesOnWithoutAReason) {
  StopRules rules;
  EXPECT_EQ(rules.reason({.sampled_ns = 1'000'000'000'000, .bytes = 1'000'000'000'000}), "");
}

TEST(StopRules, EachReasonHasItsName) {
  StopRules rules;
  rules.duration_ns = 100;
  rules.max_bytes = 1000;
  EXPECT_EQ(rules.reason({.sampled_ns = 99, .bytes = 999}), "");
  EXPECT_EQ(rules.reason({.sampled_ns = 100}), "duration");
  EXPECT_EQ(rules.reason({.bytes = 1000}), "size limit");
  EXPECT_EQ(rules.reason({.targets_ended = true}), "target exited");
  EXPECT_EQ(rules.reason({.write_failed = true, .targets_ended = true}), "write failed");
  bool asked = false;
  rules.requested = [&] { return asked; };
  EXPECT_EQ(rules.reason({}), "");
  asked = true;
  EXPECT_EQ(rules.reason({.sampled_ns = 100}), "interrupted");
}

TEST(StopRules, TheDiskIsLookedAtAFewTimesASecond) {
  int looks = 0;
  bool full = false;
  StopRules rules;
  rules.disk_is_nearly_full = [&] {
    ++looks;
    return full;
  };
  for (std::uint64_t ms = 0; ms < 1000; ms += 10)
    EXPECT_EQ(rules.reason({.now_ns = ms * 1'000'000}), "");
  EXPECT_EQ(looks, 5);
  full = true;
  EXPECT_EQ(rules.reason({.now_ns = 1'000'000'000}), "disk nearly full");
}

}  // namespace
}  // namespace dynprof
