#include "user/gpu/rank_set.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

TEST(RankSet, HasWhatItWasAskedFor) {
  const auto ranks = RankSet::parse("0,3-5");
  ASSERT_TRUE(ranks.has_value());
  EXPECT_FALSE(ranks->all());
  for (const char* rank : {"0", "3", "4", "5", "0005"}) EXPECT_TRUE(ranks->contains(rank)) << rank;
  for (const char* rank : {"1", "2", "6", "", "x", "4x", "-3", "00000005"})
    EXPECT_FALSE(ranks->contains(rank)) << rank;
}

TEST(RankSet, AllHasProcessesWithoutARankToo) {
  for (const auto& ranks : {RankSet::parse("all"), std::optional(RankSet())}) {
    ASSERT_TRUE(ranks.has_value());
    EXPECT_TRUE(ranks->all());
    EXPECT_TRUE(ranks->contains("7"));
    EXPECT_TRUE(ranks->contains(""));
  }
}

TEST(RankSet, OtherTextsAreNone) {
  for (const char* text : {"", ",", "0,", ",0", "x", "1-", "-1", "3-1", "1-2-3", "12345678", " 1"})
    EXPECT_FALSE(RankSet::parse(text).has_value()) << text;
}

}  // namespace
}  // namespace dynprof
