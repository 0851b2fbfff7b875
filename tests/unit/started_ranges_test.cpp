// Which end belongs to which of the ranges that are open.
#include "user/torch/started_ranges.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

TEST(StartedRanges, ASingleOneEndsExactly) {
  StartedRanges ranges;
  for (std::uint64_t time : {10U, 20U}) {
    ranges.start({.begin_ns = time, .thread = 1, .name = 2});
    const auto ended = ranges.end();
    ASSERT_EQ(ended.ranges.size(), 1U);
    EXPECT_EQ(ended.ranges[0].begin_ns, time);
    EXPECT_TRUE(ended.end_seen);
  }
}

TEST(StartedRanges, WhichOfSeveralEndsIsNotKnown) {
  StartedRanges ranges;
  ranges.start({.begin_ns = 10});
  ranges.start({.begin_ns = 20});
  const auto ended = ranges.end();
  EXPECT_EQ(ended.ranges.size(), 2U);
  EXPECT_FALSE(ended.end_seen);
  // One of the two is still open: the end of the next one may be its.
  ranges.start({.begin_ns = 30});
  const auto third = ranges.end();
  EXPECT_EQ(third.ranges.size(), 1U);
  EXPECT_FALSE(third.end_seen);
  EXPECT_TRUE(ranges.end().ranges.empty());
  // All ends were seen.
  ranges.start({.begin_ns = 40});
  EXPECT_TRUE(ranges.end().end_seen);
}

TEST(StartedRanges, AnEndWithoutABeginIsNothing) {
  StartedRanges ranges;
  EXPECT_TRUE(ranges.end().ranges.empty());
  ranges.start({.begin_ns = 10});
  EXPECT_TRUE(ranges.end().end_seen);
}

TEST(StartedRanges, WhatIsOpenAtTheEndHasNoEnd) {
  StartedRanges ranges;
  ranges.start({.begin_ns = 10});
  const auto open = ranges.finish();
  EXPECT_EQ(open.ranges.size(), 1U);
  EXPECT_FALSE(open.end_seen);
  EXPECT_TRUE(ranges.finish().ranges.empty());
}

// Beyond a bound the oldest ones are dropped: their ends may come.
TEST(StartedRanges, ManyThatNeverEnd) {
  StartedRanges ranges;
  for (std::uint64_t i = 0; i < 1000; ++i) ranges.start({.begin_ns = i});
  const auto ended = ranges.end();
  EXPECT_EQ(ended.ranges.size(), 256U);
  EXPECT_EQ(ended.ranges.back().begin_ns, 999U);
  EXPECT_FALSE(ended.end_seen);
}

}  // namespace
}  // namespace dynprof
