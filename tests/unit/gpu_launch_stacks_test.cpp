// Launches refer to stacks that came with earlier ones, by a number.
#include "user/gpu/launch_stacks.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

SamplePlace place(std::uint32_t stack) {
  SamplePlace place;
  place.stack = stack;
  return place;
}

TEST(LaunchStacks, AStackIsFoundByItsNumber) {
  LaunchStacks stacks;
  stacks.keep(DP_LAUNCH_STACK_NUMBER(3, 100, 7), place(11));
  stacks.keep(DP_LAUNCH_STACK_NUMBER(3, 101, 8), place(12));
  stacks.keep(DP_LAUNCH_STACK_NUMBER(4, 100, 7), place(13));
  EXPECT_EQ(stacks.find(DP_LAUNCH_STACK_NUMBER(3, 100, 7))->stack, 11u);
  EXPECT_EQ(stacks.find(DP_LAUNCH_STACK_NUMBER(3, 101, 8))->stack, 12u);
  EXPECT_EQ(stacks.find(DP_LAUNCH_STACK_NUMBER(4, 100, 7))->stack, 13u);
  EXPECT_EQ(stacks.find(DP_LAUNCH_STACK_NUMBER(5, 100, 7)), nullptr);
}

TEST(LaunchStacks, AnOlderStackOfAPlaceIsNotTakenForANewerOne) {
  LaunchStacks stacks;
  stacks.keep(DP_LAUNCH_STACK_NUMBER(0, 1, 1), place(11));
  EXPECT_EQ(stacks.find(DP_LAUNCH_STACK_NUMBER(0, 1, 2)), nullptr) << "its event was lost";
  stacks.keep(DP_LAUNCH_STACK_NUMBER(0, 1, 3), place(12));
  EXPECT_EQ(stacks.find(DP_LAUNCH_STACK_NUMBER(0, 1, 1)), nullptr);
}

TEST(LaunchStacks, NumbersThatTheKernelSideDoesNotGiveAreNotKept) {
  LaunchStacks stacks;
  const auto memo = DP_LAUNCH_STACK_NUMBER(DP_LAUNCH_MEMOS, 0, 1);
  const auto site = DP_LAUNCH_STACK_NUMBER(0, DP_LAUNCH_SITES, 1);
  stacks.keep(memo, place(11));
  stacks.keep(site, place(11));
  EXPECT_EQ(stacks.find(memo), nullptr);
  EXPECT_EQ(stacks.find(site), nullptr);
}

TEST(LaunchStacks, TheNumberIsTheLastAddress) {
  const std::uint64_t words[] = {0x1000, 42};
  SampleView view = {};
  view.native = words;
  EXPECT_EQ(LaunchStacks::number_of(view), std::nullopt);
  view.sample.flags = DP_SAMPLE_GPU_STACK_NUMBER;
  EXPECT_EQ(LaunchStacks::number_of(view), 42u);
  view.native = {};
  EXPECT_EQ(LaunchStacks::number_of(view), std::nullopt);
}

}  // namespace
}  // namespace dynprof
