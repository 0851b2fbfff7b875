// From native frames of sampled stacks to operators with their time, where it was, and every output of it.
#include "symbolizer/profile/operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "symbolizer/export/operators_json.h"
#include "symbolizer/report/operator_rows.h"
#include "symbolizer/report/report.h"
#include "symbolizer/report/rows.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::int32_t kPid = 100;
constexpr std::uint64_t kPeriod = 10'000'000;

class OperatorsTest : public ::testing::Test {
 protected:
  FrameId op(const std::string& name, const char* how = "call") {
    return fake.native("at::_ops::" + name + "::" + how + "(at::Tensor const&)", "libtorch_cpu.so");
  }
  FrameId other() { return fake.native("at::native::cpublas::gemm", "libtorch_cpu.so"); }
  FrameId line(int number) { return fake.python("/home/me/train.py", "step", 10, number); }

  OperatorRows rows(const ReportOptions& options = {}) {
    attribution.emplace(fake);
    analysis.emplace(*attribution);
    return operator_rows(select_samples(*analysis, options));
  }
  const OperatorRow* find(const OperatorRows& table, std::string_view name) {
    for (const OperatorRow& row : table.rows)
      if (row.name->text() == name) return &row;
    return nullptr;
  }

  FakeRecording fake;
  ThreadId thread = fake.thread(kPid, kPid);
  std::optional<Attribution> attribution;
  std::optional<Analysis> analysis;
};

TEST_F(OperatorsTest, NoneIsNoTable) {
  fake.sample(thread, fake.stack({line(12), other()}));
  EXPECT_TRUE(rows().rows.empty());
  EXPECT_THAT(render_report(*analysis, {}), Not(HasSubstr("Operators of torch")));
}

// linear calls addmm; the dispatcher calls each of the two twice.
TEST_F(OperatorsTest, SelfAndTotal) {
  fake.sample(thread,
              fake.stack({line(12), op("linear"), op("addmm"), op("addmm", "redispatch"), other()}),
              0, 0, 3);
  fake.sample(thread, fake.stack({line(12), op("linear"), other()}));
  fake.sample(thread, fake.stack({line(12), other()}), 0, 0, 6);
  const OperatorRows table = rows();
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.samples, 4u);
  EXPECT_EQ(table.all_samples, 10u);
  const OperatorRow& addmm = table.rows[0];
  EXPECT_EQ(addmm.name->text(), "aten::addmm");
  EXPECT_EQ(addmm.sums.self_samples, 3u);
  EXPECT_EQ(addmm.sums.total_samples, 3u);
  EXPECT_EQ(addmm.sums.self_ns, 3 * kPeriod);
  const OperatorRow& linear = table.rows[1];
  EXPECT_EQ(linear.name->text(), "aten::linear");
  EXPECT_EQ(linear.sums.self_samples, 1u);
  EXPECT_EQ(linear.sums.total_samples, 4u);
  EXPECT_EQ(linear.sums.total_ns, 4 * kPeriod);
}

// An operator inside itself, with another one between: its time counts once.
TEST_F(OperatorsTest, RecursionCountsOnce) {
  fake.sample(thread, fake.stack({op("sum"), op("copy_"), op("sum"), other()}), 0, 0, 5);
  const OperatorRows table = rows();
  EXPECT_EQ(find(table, "aten::sum")->sums.total_samples, 5u);
  EXPECT_EQ(find(table, "aten::sum")->sums.self_samples, 5u);
  EXPECT_EQ(find(table, "aten::copy_")->sums.self_samples, 0u);
  EXPECT_EQ(find(table, "aten::copy_")->sums.total_samples, 5u);
}

TEST_F(OperatorsTest, AnAutogradNodeIsAroundItsOperators) {
  const FrameId node = fake.native("torch::autograd::generated::MmBackward0::apply(int)", "a.so");
  fake.sample(thread, fake.stack({line(12), node, op("mm")}), 0, 0, 2);
  const OperatorRows table = rows();
  EXPECT_EQ(find(table, "MmBackward0")->sums.total_samples, 2u);
  EXPECT_EQ(find(table, "MmBackward0")->sums.self_samples, 0u);
  EXPECT_EQ(find(table, "aten::mm")->sums.self_samples, 2u);
}

TEST_F(OperatorsTest, ByRegionAndByLine) {
  const CodeId code = fake.code("/home/me/train.py", "model", 30);
  const FrameId region = fake.python(code, 1);
  fake.edit_tables().region_runs.push_back({.begin_ns = 0, .end_ns = 1'000'000'000, .pid = kPid});
  fake.edit_tables().region_runs.push_back({.begin_ns = 0,
                                            .end_ns = 1'000'000'000,
                                            .pid = kPid,
                                            .name = fake.string("Torch-Compiled Region: 0/1"),
                                            .code = code,
                                            .calls = 5});
  fake.sample(thread, fake.stack({line(12), region, op("mm")}), 0, 0, 3);
  fake.sample(thread, fake.stack({line(14), op("mm")}), 0, 0, 2);
  const OperatorRows table = rows();
  const OperatorRow& mm = *find(table, "aten::mm");
  ASSERT_EQ(mm.places.size(), 2u);
  EXPECT_EQ(mm.places[0].place.text(), "0/1");
  EXPECT_EQ(mm.places[0].sums.self_samples, 3u);
  EXPECT_EQ(mm.places[1].place.text(), "eager");
  EXPECT_EQ(mm.places[1].sums.self_samples, 2u);
  ASSERT_EQ(mm.lines.size(), 2u);
  EXPECT_EQ(mm.lines[0].line, "/home/me/train.py:31");
  EXPECT_EQ(mm.lines[1].line, "/home/me/train.py:14");
}

// A stack that was cut on the root side still has its innermost operators.
TEST_F(OperatorsTest, StacksWithoutARoot) {
  fake.sample(thread, fake.stack({op("addmm"), other()}), 0, kSampleTruncated);
  fake.sample(thread, fake.stack({line(12)}), 0, kSampleNativeCut);
  const OperatorRows table = rows();
  EXPECT_EQ(table.cut_samples, 1u);
  EXPECT_THAT(render_report(*analysis, {}), HasSubstr("1 more samples have a native stack"));
  EXPECT_EQ(find(table, "aten::addmm")->sums.self_samples, 1u);
  EXPECT_EQ(find(table, "aten::addmm")->lines.front().line, "");
  const auto json = nlohmann::json::parse(operators_json(select_samples(*analysis, {})));
  EXPECT_EQ(json["samples_incomplete"], 2);
  EXPECT_EQ(json["samples_cut"], 1);
}

TEST_F(OperatorsTest, WaitsInAnOperator) {
  const StackId stack = fake.stack({line(12), op("copy_"), other()});
  fake.sample(thread, stack);
  Wait wait{.begin_ns = fake.now(), .span_ns = 5 * kPeriod, .length_ns = 5 * kPeriod};
  wait.thread = thread;
  wait.stack = stack;
  wait.kind = WaitKind::kFutex;
  fake.edit_tables().waits.push_back(wait);
  const OperatorRows table = rows();
  EXPECT_EQ(find(table, "aten::copy_")->sums.wait_ns, 5 * kPeriod);
  EXPECT_EQ(find(table, "aten::copy_")->sums.total_ns, kPeriod);
}

TEST_F(OperatorsTest, TheReportSaysThatItIsSampled) {
  fake.sample(thread, fake.stack({line(12), op("add_Tensor"), other()}), 0, 0, 50);
  fake.sample(thread, fake.stack({line(12)}), 0, 0, 50);
  rows();
  const std::string report = render_report(*analysis, {});
  EXPECT_THAT(report, HasSubstr("Operators of torch, sampled"));
  EXPECT_THAT(report, HasSubstr("50 of 100 samples"));
  EXPECT_THAT(report, HasSubstr("  50.00%    9.6   50.00%       50     0.000  aten::add.Tensor"));
  EXPECT_THAT(report, HasSubstr("eager         train.py:12"));
}

// Names are the target's: no column may break, and no control character may reach a terminal.
TEST_F(OperatorsTest, HostileNames) {
  const std::string kernel =
      "c10::impl::make_boxed_from_unboxed_functor<c10::impl::detail::WrapFunctionIntoFunctor_<"
      "c10::CompileTimeFunctionPointer<void (int), &\x1b]0;evil\x07\n\xff::f>, void>::call(int)";
  fake.sample(thread, fake.stack({fake.native(kernel, "x.so")}));
  for (int i = 0; i < 2100; ++i)
    fake.sample(thread, fake.stack({op("op" + std::to_string(i) + std::string(150, 'x'))}));
  const OperatorRows table = rows();
  EXPECT_EQ(table.rows.size(), 2101u);
  const std::string report = render_report(*analysis, {});
  EXPECT_THAT(report, Not(HasSubstr("\x1b")));
  EXPECT_THAT(report, HasSubstr("2,081 more operators"));
  const auto json = nlohmann::json::parse(operators_json(select_samples(*analysis, {})));
  EXPECT_EQ(json["operators"].size(), 2000u);
  EXPECT_EQ(json["left_out"], 101);
}

TEST_F(OperatorsTest, DeepNestingCostsLittle) {
  std::vector<FrameId> frames;
  for (int i = 0; i < 500; ++i) frames.push_back(op(i % 2 == 0 ? "a" : "b"));
  fake.sample(thread, fake.stack(frames), 0, 0, 2);
  const OperatorRows table = rows();
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(find(table, "aten::a")->sums.total_samples, 2u);
}

TEST(ShareIntervals, AreWilsons) {
  const ShareInterval half = share_interval(50, 100);
  EXPECT_NEAR(half.low, 0.4038, 0.0005);
  EXPECT_NEAR(half.high, 0.5962, 0.0005);
  EXPECT_DOUBLE_EQ(share_interval(0, 100).low, 0);
  EXPECT_GT(share_interval(0, 100).high, 0.03);
  EXPECT_DOUBLE_EQ(share_interval(0, 0).high, 1);
  EXPECT_LE(share_interval(200, 100).high, 1);
}

}  // namespace
}  // namespace dynprof
