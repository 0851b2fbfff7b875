#include "user/torch/open_phases.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

constexpr StringId kDynamo = 1, kFrame = 2, kGc = 3;

TEST(OpenPhases, PairsByFrame) {
  OpenPhases open;
  open.begin(0x100, kDynamo);
  open.begin(0x200, kFrame);
  auto inner = open.end(0x200, kFrame);
  ASSERT_TRUE(inner);
  EXPECT_EQ(inner->depth, 2u);
  EXPECT_EQ(inner->lost, 0u);
  auto outer = open.end(0x100, kDynamo);
  ASSERT_TRUE(outer);
  EXPECT_EQ(outer->depth, 1u);
  EXPECT_TRUE(open.empty());
}

TEST(OpenPhases, TheSameNameInsideItselfIsAnotherFrame) {
  OpenPhases open;
  open.begin(0x100, kDynamo);
  open.begin(0x200, kDynamo);
  EXPECT_EQ(open.end(0x100, kDynamo)->depth, 1u);
  EXPECT_TRUE(open.empty());
}

TEST(OpenPhases, CountsEndsThatWereLost) {
  OpenPhases open;
  open.begin(0x100, kDynamo);
  open.begin(0x200, kFrame);
  open.begin(0x300, kGc);
  auto ended = open.end(0x100, kDynamo);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->lost, 2u);
  EXPECT_TRUE(open.empty());
}

TEST(OpenPhases, AnEndWithoutABeginIsNone) {
  OpenPhases open;
  open.begin(0x100, kDynamo);
  EXPECT_FALSE(open.end(0x999, kFrame));
  EXPECT_EQ(open.size(), 1u);
}

TEST(OpenPhases, PhasesOpenAtAttachAreKnownByName) {
  OpenPhases open;
  open.set({kDynamo, kFrame});
  EXPECT_EQ(open.end(0x200, kFrame)->depth, 2u);
  EXPECT_EQ(open.end(0x100, kDynamo)->name, kDynamo);
}

TEST(OpenPhases, APhaseThatIsNotOnTorchsListYetIsNotLost) {
  OpenPhases open;
  open.begin(0x100, kDynamo);
  open.begin(0x200,
             kFrame);  // a garbage collection begins before torch has put this one on its list
  EXPECT_EQ(open.drop_ended(1), 0u);
  EXPECT_EQ(open.size(), 2u);
  EXPECT_EQ(open.drop_ended(0), 2u);
  EXPECT_TRUE(open.empty());
}

TEST(OpenPhases, IsBounded) {
  OpenPhases open;
  bool room = true;
  for (std::uint64_t i = 1; i < 1000; ++i) room = open.begin(i, kDynamo) && room;
  EXPECT_FALSE(room);
  EXPECT_LE(open.size(), 256u);
}

}  // namespace
}  // namespace dynprof
