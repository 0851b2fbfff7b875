// From counts of runs in a recording to calls, rates and times per region.
#include "symbolizer/attribution/region_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "symbolizer/report/region_rows.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::int32_t kPid = 100;
constexpr const char* kRegion = "Torch-Compiled Region: 0/1";

class RegionRunsTest : public ::testing::Test {
 protected:
  void counted(std::uint64_t begin_ns, std::uint64_t end_ns, RunsThen then = RunsThen::kCounted) {
    fake.edit_tables().region_runs.push_back(
        {.begin_ns = begin_ns, .end_ns = end_ns, .pid = kPid, .then = then});
  }
  // Valid until the next call.
  RegionRuns& runs(const char* name, std::uint64_t calls, CodeId code = 0) {
    RegionRuns row = fake.edit_tables().region_runs.back();
    row.name = fake.string(name);
    row.code = code;
    row.calls = calls;
    row.then = RunsThen::kCounted;
    fake.edit_tables().region_runs.push_back(row);
    return fake.edit_tables().region_runs.back();
  }
  RegionRunStats stats() { return RegionRunStats(fake.tables()); }

  FakeRecording fake;
};

TEST_F(RegionRunsTest, NothingCountedIsNoRegion) {
  EXPECT_THAT(stats().regions(), IsEmpty());
  EXPECT_THAT(stats().processes(), IsEmpty());
  Attribution attribution(fake);
  Analysis analysis(attribution);
  EXPECT_THAT(render_report(analysis, {}), Not(HasSubstr("Compiled regions")));
}

TEST_F(RegionRunsTest, CountsAreAddedUp) {
  counted(0, kSecond);
  counted(kSecond, 2 * kSecond);
  RegionRuns& first = runs(kRegion, 30);
  first.timed = 30;
  first.time_ns = 30 * 2000;
  first.nested_ns = 30 * 500;
  first.lookups = 30;
  first.lookup_ns = 30 * 700;
  counted(2 * kSecond, 3 * kSecond);
  RegionRuns& second = runs(kRegion, 10);
  second.timed = 9;
  second.time_ns = 9 * 2000;
  const RegionRunStats all = stats();
  ASSERT_EQ(all.regions().size(), 1u);
  const RegionStats& region = all.regions()[0];
  EXPECT_EQ(region.id, parse_trace_id("0/1"));
  EXPECT_FALSE(region.backward);
  EXPECT_EQ(region.calls, 40u);
  EXPECT_EQ(region.timed, 39u);
  EXPECT_DOUBLE_EQ(region.time_per_run(), 2000);
  EXPECT_DOUBLE_EQ(region.self_per_run(), (39 * 2000 - 30 * 500) / 39.0);
  EXPECT_DOUBLE_EQ(region.lookup_per_run(), 700);
  // Since it was first seen.
  EXPECT_DOUBLE_EQ(region.calls_per_second(), 20);
  EXPECT_TRUE(all.process_of(region).complete);
  EXPECT_EQ(all.process_of(region).end_ns, 3 * kSecond);
}

TEST_F(RegionRunsTest, BackwardsAndRegionsWithoutAnIdAreApart) {
  counted(0, kSecond);
  runs(kRegion, 1);
  runs("CompiledFunctionBackward 0/1", 2);
  runs("CompiledFunctionBackward", 3);
  const RegionRunStats all = stats();
  ASSERT_EQ(all.regions().size(), 3u);
  for (const RegionStats& region : all.regions()) {
    EXPECT_EQ(region.backward, region.calls != 1);
    EXPECT_EQ(is_valid(region.id), region.calls != 3);
  }
}

TEST_F(RegionRunsTest, RunsThatAreTooFrequentHaveALowerBound) {
  counted(0, kSecond, RunsThen::kNotCounted);
  RegionRuns& row = runs(kRegion, 2500);
  row.timed = 2500;
  row.time_ns = 2500 * 40'000;
  Attribution attribution(fake);
  Analysis analysis(attribution);
  const std::vector<RegionRow> rows = region_rows(analysis);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_FALSE(rows[0].complete);
  EXPECT_EQ(rows[0].share, std::nullopt);
  const std::string report = render_report(analysis, {});
  EXPECT_THAT(report, HasSubstr(">= 2,500        -    40.0 us"));
  EXPECT_THAT(report, HasSubstr("Process 100 ran regions too often"));
}

TEST_F(RegionRunsTest, SharesOfRunsThatAreNotTimedAreEstimates) {
  counted(0, kSecond, RunsThen::kNotTimed);
  RegionRuns& timed = runs(kRegion, 1000);
  timed.timed = 1000;
  timed.time_ns = 1000 * 40'000;
  counted(kSecond, 10 * kSecond);
  runs(kRegion, 9000);
  runs("Torch-Compiled Region: 0/2", 1);
  Attribution attribution(fake);
  Analysis analysis(attribution);
  const std::vector<RegionRow> rows = region_rows(analysis);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].complete);
  EXPECT_FALSE(rows[0].timed);
  EXPECT_DOUBLE_EQ(rows[0].share.value(), 0.04);
  EXPECT_EQ(rows[1].share, std::nullopt) << "it was seen after lengths were given up";
  EXPECT_EQ(analysis.regions().processes()[0].timed_end_ns, kSecond);
  const std::string report = render_report(analysis, {});
  EXPECT_THAT(report, HasSubstr("~4.0%"));
  EXPECT_THAT(report, HasSubstr("Process 100 ran regions too often to time every run"));
}

TEST_F(RegionRunsTest, EqualCodeSharesItsSamplesByTime) {
  const CodeId code = fake.code("/home/user/train.py", "step", 10);
  counted(0, kSecond);
  for (const char* name : {kRegion, "Torch-Compiled Region: 0/2"}) {
    RegionRuns& row = runs(name, name == kRegion ? 3 : 1, code);
    row.timed = row.calls;
    row.time_ns = row.calls * 1000;
  }
  const ThreadId thread = fake.thread(kPid, kPid, "python3");
  for (int i = 0; i < 4; ++i) fake.sample(thread, fake.stack({fake.python(code, 3)}));
  Attribution attribution(fake);
  Analysis analysis(attribution);
  const std::vector<RegionRow> rows = region_rows(analysis);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].id(), "0/1");
  EXPECT_DOUBLE_EQ(rows[0].cpu_share.value(), 0.75);
  EXPECT_DOUBLE_EQ(rows[1].cpu_share.value(), 0.25);
  EXPECT_EQ(rows[0].outside, std::nullopt) << "too few samples";
}

TEST_F(RegionRunsTest, SamplesAreDividedByPlace) {
  const CodeId code = fake.code("/home/user/train.py", "step", 10);
  counted(fake.now(), fake.now() + kSecond);
  RegionRuns& row = runs(kRegion, 100, code);
  row.timed = 100;
  row.time_ns = kSecond / 2;
  const ThreadId thread = fake.thread(kPid, kPid, "python3");
  const FrameId main = fake.python("/home/user/train.py", "main", 1, 2);
  const FrameId region = fake.python(code, 3);
  const FrameId wrapper = fake.python("/v/torch/_functorch/wrap.py", "wrapper", 5, 6);
  const FrameId graph = fake.python("<eval_with_key>.7", "forward", 1, 3);
  const FrameId helper = fake.python("/home/user/train.py", "helper", 50, 51);
  const FrameId native = fake.native("memcpy", "/usr/lib/libc.so.6");
  constexpr std::uint64_t kRounds = 3;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    fake.sample(thread, fake.stack({main}));
    fake.sample(thread, fake.stack({main, region}));
    fake.sample(thread, fake.stack({main, region, native}));
    fake.sample(thread, fake.stack({main, region, wrapper}));
    fake.sample(thread, fake.stack({main, region, wrapper, graph}));
    fake.sample(thread, fake.stack({main, region, wrapper, graph, native}));
    fake.sample(thread, fake.stack({main, region, wrapper, graph, wrapper}));
    fake.sample(thread, fake.stack({main, region, helper}));
  }
  Attribution attribution(fake);
  Analysis analysis(attribution);
  const std::vector<RegionRow> rows = region_rows(analysis);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].function, "step");
  const RegionSamples& samples = rows[0].samples;
  EXPECT_EQ(samples.samples, 7 * kRounds);
  EXPECT_EQ(samples.bytecode_ns, 2 * kRounds * fake.meta().period_ns);
  EXPECT_EQ(samples.wrapper_ns, kRounds * fake.meta().period_ns);
  EXPECT_EQ(samples.graph_ns, 3 * kRounds * fake.meta().period_ns);
  EXPECT_EQ(samples.other_ns, kRounds * fake.meta().period_ns);
  EXPECT_DOUBLE_EQ(rows[0].outside.value(), 3.0 / 7);
  EXPECT_DOUBLE_EQ(rows[0].cpu_share.value(), 7.0 / 8);
  EXPECT_DOUBLE_EQ(rows[0].share.value(), 0.5);
  EXPECT_THAT(render_report(analysis, {}), HasSubstr("Compiled regions"));
}

TEST_F(RegionRunsTest, HostileRowsHaveNoRates) {
  counted(UINT64_MAX, UINT64_MAX);
  RegionRuns& row = runs("\x1b[31m<script>", UINT64_MAX);
  row.timed = UINT64_MAX;
  row.time_ns = 1;
  row.nested_ns = UINT64_MAX;
  row.lookups = UINT64_MAX;
  const RegionStats region = stats().regions().at(0);
  EXPECT_EQ(region.calls_per_second(), 0);
  EXPECT_EQ(region.self_per_run(), 0);
  Attribution attribution(fake);
  Analysis analysis(attribution);
  EXPECT_THAT(render_report(analysis, {}), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace dynprof
