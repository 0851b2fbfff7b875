// Two recordings beside each other: the numbers, and what the counts of samples prove.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <tuple>

#include "symbolizer/base/text.h"
#include "symbolizer/compare/compare.h"
#include "symbolizer/compare/compare_page.h"
#include "symbolizer/compare/significance.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_training.h"
#include "tests/unit/page_data.h"

namespace dynprof {
namespace {

using testing::HasSubstr;
using testing::Not;

// ---- significance ----------------------------------------------------------------------------------

TEST(Significance, EqualCountsAreChance) {
  EXPECT_DOUBLE_EQ(difference_probability(0, 0, 1, 1), 1);
  EXPECT_DOUBLE_EQ(difference_probability(50, 50, 1, 1), 1);
  EXPECT_GT(difference_probability(100, 110, 1, 1), 0.4);
}

TEST(Significance, ExactForSmallCounts) {
  // All of n on one side: twice 2^-n.
  EXPECT_NEAR(difference_probability(0, 5, 1, 1), 2 / 32.0, 1e-12);
  EXPECT_NEAR(difference_probability(0, 10, 1, 1), 2 / 1024.0, 1e-12);
  EXPECT_NEAR(difference_probability(10, 0, 1, 1), 2 / 1024.0, 1e-12);
  // P(X >= 8) of binomial(10, 1/2) is 56 / 1024.
  EXPECT_NEAR(difference_probability(2, 8, 1, 1), 2 * 56 / 1024.0, 1e-12);
}

TEST(Significance, LongerExposureCountsMore) {
  // Twice the exposure, twice the samples: the same rate.
  EXPECT_GT(difference_probability(100, 200, 1, 2), 0.9);
  EXPECT_LT(difference_probability(100, 200, 1, 1), 1e-6);
  EXPECT_DOUBLE_EQ(difference_probability(1, 100, 0, 1), 1);
  EXPECT_DOUBLE_EQ(difference_probability(1, 100, 1, std::nan("")), 1);
}

TEST(Significance, TheNormalDistributionGoesOnWhereTheSumEnds) {
  const double exact = difference_probability(960, 1040, 1, 1);   // 2,000
  const double normal = difference_probability(960, 1041, 1, 1);  // 2,001
  EXPECT_NEAR(exact, normal, 0.01);
  EXPECT_LT(difference_probability(1'000'000, 1'010'000, 1, 1), 1e-6);
}

TEST(Significance, OfManyChancesFewAreChosen) {
  std::vector<double> chance;
  for (int i = 1; i <= 1000; ++i) chance.push_back(i / 1000.0);  // as chance alone makes them
  const auto none = significant(chance);
  EXPECT_EQ(std::count(none.begin(), none.end(), true), 0);
  chance[500] = 1e-9;
  const auto one = significant(chance);
  EXPECT_EQ(std::count(one.begin(), one.end(), true), 1);
  EXPECT_TRUE(one[500]);
  EXPECT_TRUE(significant({}).empty());
}

// ---- comparison ------------------------------------------------------------------------------------

const CompareTable* find(const Comparison& comparison, const std::string& id) {
  for (const CompareTable& table : comparison.tables)
    if (table.id == id) return &table;
  return nullptr;
}

const CompareRow* find(const CompareTable* table, const std::string& name) {
  if (table == nullptr) return nullptr;
  for (const CompareRow& row : table->rows)
    if (row.name == name) return &row;
  return nullptr;
}

struct TwoRecordings {
  Comparison compared() const {
    const Attribution of_a(a), of_b(b);
    return compare(Analysis(of_a), Analysis(of_b));
  }
  std::string text() const { return render_comparison(compared(), "before", "after"); }
  FakeRecording a, b;
};

void run(FakeRecording& fake, const char* function, std::uint64_t samples) {
  const ThreadId thread = fake.thread(100, 100, "python3");
  fake.sample(thread, fake.stack({fake.python("/x/train.py", function, 10)}), 0, 0, samples);
}

void exact_compile(FakeRecording& fake, std::uint64_t ms) {
  FakeEdges edges(fake, fake.thread(100, 100, "python3"));
  edges.compile("0/0");
  edges.begin("dynamo");
  edges.phase("backend_compile", ms);
  edges.end();
  fake.edit_trailer().end_ns = fake.now();
}

TEST(Compare, RunTimeIsPerSecondOfRecording) {
  TwoRecordings two;
  run(two.a, "step", 200);  // 2 s of 2 s
  run(two.b, "step", 600);  // 6 s of 12 s
  two.b.skip(600);
  two.b.edit_trailer().end_ns = two.b.now();
  const Comparison comparison = two.compared();
  const CompareRow* row = find(find(comparison, "run-functions"), "step x/train.py");
  ASSERT_NE(row, nullptr);
  EXPECT_NEAR(row->a_ns, 1e9, 1e6);
  EXPECT_NEAR(row->b_ns, 0.5e9, 1e6);
  EXPECT_EQ(row->a_count, 200u);
  EXPECT_EQ(row->b_count, 600u);
  EXPECT_TRUE(row->significant);
}

TEST(Compare, AFewSamplesProveNothing) {
  TwoRecordings two;
  run(two.a, "step", 300);
  run(two.a, "helper", 3);
  run(two.b, "step", 300);
  run(two.b, "helper", 6);
  const Comparison comparison = two.compared();
  const CompareTable* table = find(comparison, "run-functions");
  EXPECT_FALSE(find(table, "helper x/train.py")->significant);
  EXPECT_THAT(two.text(), HasSubstr("\n~ "));
}

TEST(Compare, ExactTimesOfCompilesAreTotals) {
  TwoRecordings two;
  exact_compile(two.a, 100);
  exact_compile(two.b, 250);
  two.b.skip(1000);  // however long it goes on
  two.b.edit_trailer().end_ns = two.b.now();
  const Comparison comparison = two.compared();
  const CompareTable* compiles = find(comparison, "compiles");
  ASSERT_NE(compiles, nullptr);
  EXPECT_EQ(compiles->times, CompareTimes::kExact);
  EXPECT_DOUBLE_EQ(compiles->total.a_ns, 100e6);
  EXPECT_DOUBLE_EQ(compiles->total.b_ns, 250e6);
  EXPECT_EQ(compiles->total.a_count, 1u);
  const CompareTable* phases = find(comparison, "phases");
  ASSERT_NE(phases, nullptr);
  EXPECT_DOUBLE_EQ(phases->total.b_ns, 250e6);
  EXPECT_THAT(two.text(), HasSubstr("2.50x"));
}

TEST(Compare, KernelsOfInductorAreByTheHashOfTheirSource) {
  const std::string library = "cmsejr45wpsl56eabr2smjw7glkqkayhs63njd7nfectvjlx2vnt.main.so";
  TwoRecordings two;
  for (auto [fake, folder, samples] :
       {std::tuple(&two.a, "/tmp/one/ms/", 100), std::tuple(&two.b, "/x/ms/", 300)}) {
    const ThreadId thread = fake->thread(100, 100, "python3");
    const FrameId kernel = fake->native("kernel._omp_fn.0", folder + library);
    fake->sample(thread, fake->stack({kernel, fake->native("exp", "/lib/libm.so.6")}), 0, 0,
                 static_cast<std::uint64_t>(samples));
  }
  const Comparison comparison = two.compared();
  const CompareRow* row = find(find(comparison, "generated"), "kernel._omp_fn.0 " + library);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->a_count, 100u);
  EXPECT_EQ(row->b_count, 300u);
}

TEST(Compare, ARecordingWithItselfHasNoDifference) {
  FakeTraining fake;
  fake.whole_run();
  const Attribution attribution(fake);
  const Analysis analysis(attribution);
  const Comparison comparison = compare(analysis, analysis);
  ASSERT_FALSE(comparison.tables.empty());
  for (const CompareTable& table : comparison.tables) {
    for (const CompareRow& row : table.rows) {
      EXPECT_EQ(row.a_ns, row.b_ns) << row.name;
      EXPECT_EQ(row.significant, table.times == CompareTimes::kExact) << row.name;
    }
  }
}

TEST(Compare, EmptyAndTinyRecordingsSaySo) {
  TwoRecordings two;
  EXPECT_THAT(two.text(), HasSubstr("no torch.compile activity was seen in either"));
  run(two.b, "step", 1);
  const std::string text = two.text();
  EXPECT_THAT(text, HasSubstr("A has 0 samples: too few"));
  EXPECT_THAT(text, HasSubstr("B has 1 samples: too few"));
}

TEST(Compare, TextIsSafeAndNarrow) {
  HostileRecording a;
  FakeTraining b;
  b.whole_run();
  const Attribution of_a(a), of_b(b);
  const std::string text = render_comparison(compare(Analysis(of_a), Analysis(of_b)), "a\x1b[31m\n",
                                             std::string(500, 'x'));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line, escape_terminal(line));
    EXPECT_LE(display_width(line), 100u) << line;
  }
}

TEST(Compare, ThePageHasBothSides) {
  TwoRecordings two;
  run(two.a, "step", 30);
  run(two.b, "step", 90);
  const Attribution of_a(two.a), of_b(two.b);
  const Analysis a(of_a), b(of_b);
  PageSink sink;
  ASSERT_TRUE(write_comparison(a, b, compare(a, b), "before", "after</script>", sink));
  const auto data = page_data(sink.text);
  EXPECT_EQ(data["sides"], (nlohmann::json{"before", "after</script>"}));
  ASSERT_EQ(data["flame"]["groups"].size(), 2u);
  EXPECT_EQ(data["flame"]["groups"][0]["side"], 0);
  EXPECT_EQ(data["flame"]["groups"][1]["side"], 1);
  ASSERT_NE(page_table(data, "run-functions"), nullptr);
}

}  // namespace
}  // namespace dynprof
