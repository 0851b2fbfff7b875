#include "user/torch/open_runs.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

OpenRuns::Run region(std::uint64_t sp) { return {0, sp, true}; }
OpenRuns::Run node(std::uint64_t address, std::uint64_t sp) { return {address, sp, true}; }

TEST(OpenRuns, ARunEndsByACallFromItsFunction) {
  OpenRuns open;
  EXPECT_TRUE(open.begin(region(0x9000)).empty());
  EXPECT_TRUE(open.begin(region(0x8000)).empty());
  ASSERT_EQ(open.end(0, 0x7f00).size(), 1u);
  auto outer = open.end(0, 0x8f00);
  ASSERT_EQ(outer.size(), 1u);
  EXPECT_EQ(outer[0].sp, 0x9000u);
  EXPECT_TRUE(open.end(0, 0x8f00).empty());
}

TEST(OpenRuns, ARunThatWasLeftIsOverWhereTheNextBegins) {
  OpenRuns open;
  open.begin(node(1, 0x9000));
  auto left = open.begin(node(2, 0x9000));  // the engine calls the next node from the same place
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].node, 1u);
}

TEST(OpenRuns, ANodeEndsByItsAddress) {
  OpenRuns open;
  open.begin(node(1, 0x9000));
  open.begin(region(0x8000));
  EXPECT_TRUE(open.end(2, 0x7000).empty());
  auto ended = open.end(1, 0x8f00);
  ASSERT_EQ(ended.size(), 2u);  // the region in it was left
  EXPECT_EQ(ended[0].node, 0u);
  EXPECT_EQ(ended[1].node, 1u);
}

TEST(OpenRuns, AnExceptionEndsTheInnermostNode) {
  OpenRuns open;
  open.begin(node(1, 0x9000));
  open.begin(node(2, 0x8000));
  auto ended = open.raised(0x7f00);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].node, 2u);
}

TEST(OpenRuns, IsBounded) {
  OpenRuns open;
  std::size_t left = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) left += open.begin(node(1, 0x100000 - 16 * i)).size();
  EXPECT_GE(left, 900u);
}

}  // namespace
}  // namespace dynprof
