// Compiles that several ranks made alike are one row of the compile table.
#include "symbolizer/report/fold_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "symbolizer/report/report.h"
#include "tests/unit/fake_edges.h"

namespace dynprof {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Ranks = std::vector<std::uint64_t>;

struct FoldRanks : testing::Test {
  FakeRecording fake;
  std::vector<std::unique_ptr<FakeEdges>> ranks;
  std::optional<Attribution> attribution;

  // They compile one after the other here; what they compile is what counts.
  FakeEdges& rank(int number) {
    const std::int32_t pid = 200 + number;
    fake.fact(pid, "rank", std::to_string(number), "");
    ranks.push_back(std::make_unique<FakeEdges>(fake, fake.thread(pid, pid)));
    return *ranks.back();
  }
  std::vector<FoldedCompile> folded() {
    attribution.emplace(fake);
    std::vector<CompileIndex> all(attribution->compiles().size());
    std::iota(all.begin(), all.end(), CompileIndex{0});
    return fold_ranks(*attribution, all);
  }
};

TEST_F(FoldRanks, TheSameInAllIsOne) {
  for (int i = 0; i < 4; ++i) rank(i).forward("0/0");
  ranks[2]->forward("0/1");
  const std::vector<FoldedCompile> all = folded();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].ranks, (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(all[1].ranks, Ranks{2});
  EXPECT_EQ(attribution->compiles()[all[1].compile].id.text(), "0/1");
  const Analysis analysis(*attribution);
  const std::string report = render_report(analysis, {});
  EXPECT_THAT(report, HasSubstr("\n   0-3 0/0 "));
  EXPECT_THAT(report, HasSubstr("\n     2 0/1 "));
  EXPECT_THAT(report, HasSubstr("its times are of the slowest"));
  ReportOptions one;
  one.compiles = {0, 1};
  EXPECT_THAT(render_report(analysis, one), Not(HasSubstr("0-3")));
}

TEST_F(FoldRanks, OneThatTookMuchLongerIsByItself) {
  for (int i = 0; i < 3; ++i) rank(i).forward("0/0");
  FakeEdges& slow = rank(3);
  slow.compile("0/0");
  slow.phase("entire_backward_compile", 1);  // another kind
  slow.begin("dynamo");
  fake.pass_ms(700);
  slow.end();
  slow.no_compile();
  const std::vector<FoldedCompile> all = folded();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].ranks, (Ranks{0, 1, 2}));
  EXPECT_EQ(all[1].ranks, Ranks{3});
  EXPECT_EQ(all[2].ranks, Ranks{3});
}

TEST_F(FoldRanks, WithoutRanksEachIsItsOwn) {
  FakeEdges one(fake, fake.thread(200, 200)), other(fake, fake.thread(201, 201));
  one.forward("0/0");
  other.forward("0/0");
  const std::vector<FoldedCompile> all = folded();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[0].ranks.empty());
}

TEST(RankRanges, AsText) {
  EXPECT_EQ(rank_ranges({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(rank_ranges({0, 2, 3, 7}), "0,2-3,7");
  EXPECT_EQ(rank_ranges({5}), "5");
  EXPECT_EQ(rank_ranges({}), "");
}

}  // namespace
}  // namespace dynprof
