// From the begin of a process to its first step without a compile.
#include "symbolizer/attribution/start_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "symbolizer/export/compiles_json.h"
#include "symbolizer/export/html/report_page.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/page_data.h"

namespace dynprof {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kMs = 1'000'000;

class StartUpTest : public testing::Test {
 protected:
  StartUpTest() : thread_(fake.thread(100, 100)), edges_(fake, thread_) {
    begin_ = fake.now();
    fake.edit_tables().lives.push_back(
        {.time_ns = begin_, .pid = 100, .kind = LifeKind::kExec, .comm = fake.string("python")});
    edges_.watch();
  }
  StackId at(std::string_view file, std::string_view function) {
    return fake.stack(
        {fake.python("/home/me/train.py", "<module>", 1, 3), fake.python(file, function, 10, 12)});
  }
  StackId imports() { return at("<frozen importlib._bootstrap>", "_find_and_load"); }
  StackId weights() { return at("/v/torch/serialization.py", "load"); }
  StackId own() { return fake.stack({fake.python("/home/me/train.py", "<module>", 1, 3)}); }
  void run(const char* name) {
    edges_.region_begin(name);
    fake.sample(thread_, own(), 0, 0, 5);
    edges_.region_end();
  }
  std::vector<StartUp> find() {
    fake.edit_trailer().end_ns = fake.now();
    Attribution attribution(fake);
    return find_start_ups(attribution, Waits(attribution));
  }

  FakeRecording fake;
  ThreadId thread_;
  FakeEdges edges_;
  std::uint64_t begin_ = 0;
};

TEST_F(StartUpTest, EachRuleDecidesAStackOfItsKind) {
  std::set<StartUpPart> ruled;
  for (std::size_t i = 0; i < start_up_rules().size(); ++i) {
    const StartUpRule& rule = start_up_rules()[i];
    const std::string function = rule.function[0] ? rule.function : "anything";
    const FrameId frame =
        rule.kind == FrameKind::kPython
            ? fake.python((rule.file[0] == '<' ? "" : "/v/") + std::string(rule.file), function, 1)
            : fake.native(function, "/l/" + std::string(rule.file) + ".so.1");
    const StackId stack = fake.stack({fake.python("/home/me/t.py", "f", 1), frame});
    const ResolvedFrames frames(fake.tables());
    EXPECT_EQ(start_up_parts(fake.tables(), frames)[stack], rule.part)
        << rule.file << ' ' << rule.function;
    ruled.insert(rule.part);
  }
  EXPECT_EQ(ruled.size(), 5u) << "of the others the compiles tell";
  const StackId other = fake.stack({fake.python("/home/me/serialization.py", "load", 1)});
  const ResolvedFrames frames(fake.tables());
  EXPECT_EQ(start_up_parts(fake.tables(), frames)[other], StartUpPart::kOther);
}

TEST_F(StartUpTest, FromTheExecToTheSecondStepWithoutACompile) {
  fake.sample(thread_, imports(), 0, 0, 30);
  fake.sample(thread_, weights(), 0, 0, 20);
  fake.sample(thread_, own(), 0, 0, 10);
  edges_.compile("0/0");
  edges_.begin("dynamo");
  fake.sample(thread_, own(), edges_.context(), 0, 40);
  edges_.end();
  edges_.no_compile();
  run("Torch-Compiled Region: 0/0");
  fake.sample(thread_, own(), 0, 0, 3);
  const std::uint64_t second = fake.now();
  run("Torch-Compiled Region: 0/0");
  fake.sample(thread_, own(), 0, 0, 500);
  const std::vector<StartUp> found = find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].first_step_seen);
  EXPECT_EQ(found[0].begin_ns, begin_);
  EXPECT_EQ(found[0].end_ns, second);
  const std::uint64_t bin = 20 * kMs;
  const auto near = [&](StartUpPart part, std::uint64_t ms) {
    EXPECT_NEAR(static_cast<double>(found[0].of(part)), static_cast<double>(ms * kMs),
                static_cast<double>(bin))
        << start_up_text(part);
  };
  near(StartUpPart::kImports, 300);
  near(StartUpPart::kWeights, 200);
  near(StartUpPart::kOther, 100);
  near(StartUpPart::kCompile, 400);
  near(StartUpPart::kFirstStep, 80);
  std::vector<StartUpPart> order;
  std::uint64_t at = begin_;
  for (const StartUpSlice& slice : found[0].slices) {
    EXPECT_EQ(slice.begin_ns, at);
    at = slice.end_ns;
    order.push_back(slice.part);
  }
  EXPECT_EQ(at, second);
  EXPECT_EQ(order, (std::vector<StartUpPart>{StartUpPart::kImports, StartUpPart::kWeights,
                                             StartUpPart::kOther, StartUpPart::kCompile,
                                             StartUpPart::kFirstStep}));
}

TEST_F(StartUpTest, WaitsCountAndGapsAreUnknown) {
  fake.sample(thread_, imports(), 0, 0, 10);
  const std::uint64_t wait_begin = fake.now();
  fake.pass_ms(300);
  Wait wait{.begin_ns = wait_begin, .span_ns = 300 * kMs, .length_ns = 300 * kMs};
  wait.thread = thread_;
  wait.stack = weights();
  wait.kind = WaitKind::kDisk;
  fake.edit_tables().waits.push_back(wait);
  fake.pass_ms(400);
  edges_.forward("0/0");
  fake.sample(thread_, own(), 0, 0, 100);
  const std::vector<StartUp> found = find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].first_step_seen);
  EXPECT_NEAR(static_cast<double>(found[0].of(StartUpPart::kWeights)), 300e6, 41e6);
  EXPECT_GE(found[0].of(StartUpPart::kUnknown), 340 * kMs);
}

TEST_F(StartUpTest, WithoutACpuItGoesOnWithWhatItDid) {
  fake.sample(thread_, imports(), 0, 0, 10);
  Wait wait{.begin_ns = fake.now(), .span_ns = 300 * kMs, .length_ns = 300 * kMs};
  wait.runnable_ns = wait.length_ns;
  wait.thread = thread_;
  wait.kind = WaitKind::kPreempted;
  fake.edit_tables().waits.push_back(wait);
  fake.pass_ms(300);
  edges_.forward("0/0");
  const std::vector<StartUp> found = find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(static_cast<double>(found[0].of(StartUpPart::kImports)), 400e6, 41e6);
}

TEST_F(StartUpTest, InTheReportAndTheLedger) {
  fake.sample(thread_, imports(), 0, 0, 30);
  edges_.compile("0/0");
  edges_.begin("dynamo");
  fake.sample(thread_, own(), edges_.context(), 0, 30);
  edges_.end();
  fake.edit_trailer().end_ns = fake.now();
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  const std::string text = render_report(analysis, {});
  EXPECT_THAT(text, HasSubstr("\n# Start-up of process 100, its main thread: 0.60 s to the end of "
                              "the last compile. "));
  EXPECT_THAT(text, HasSubstr("\n#    At s    For s  What\n     0.00     0.30  imports\n"
                              "     0.30     0.30  compiles\n"));
  PageSink sink;
  ASSERT_TRUE(write_html(analysis, {}, sink));
  const Json page = page_data(sink.text);
  const Json* table = page_table(page, "startup");
  ASSERT_NE(table, nullptr);
  ASSERT_EQ((*table)["rows"].size(), 2u);
  EXPECT_EQ((*table)["rows"][1]["cells"], (Json{"100", 300 * kMs, 300 * kMs, 50.0, "compiles"}));
  const Json start_up = Json::parse(compiles_json(analysis))["start_up"];
  ASSERT_EQ(start_up.size(), 1u);
  EXPECT_EQ(start_up[0]["process"], 100);
  EXPECT_EQ(start_up[0]["first_step_seen"], false);
  EXPECT_EQ(start_up[0]["parts"][1]["part"], "compiles");
}

TEST_F(StartUpTest, AProcessThatWasThereHasNone) {
  fake.edit_tables().lives.clear();
  fake.sample(thread_, imports(), 0, 0, 30);
  EXPECT_TRUE(find().empty());
  fake.edit_tables().lives.push_back({.time_ns = begin_, .pid = 100, .kind = LifeKind::kThere});
  EXPECT_TRUE(find().empty());
}

TEST_F(StartUpTest, NoCompileAndOneSample) {
  fake.sample(thread_, imports());
  std::vector<StartUp> found = find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].of(StartUpPart::kCompile), 0u);
  EXPECT_EQ(found[0].slices.size(), 1u);
  // The recording ends when it begins.
  fake.edit_trailer().end_ns = begin_;
  Attribution attribution(fake);
  EXPECT_TRUE(find_start_ups(attribution, Waits(attribution)).empty());
}

TEST_F(StartUpTest, TimesThatCannotBe) {
  fake.edit_trailer().end_ns = UINT64_MAX;
  fake.sample(thread_, imports(), 0, 0, 3);
  for (int i = 0; i < 20'000; ++i) {  // all of them over everything
    Wait wait{.begin_ns = begin_, .span_ns = UINT64_MAX / 2, .length_ns = UINT64_MAX / 2};
    wait.thread = thread_;
    wait.stack = i % 2 ? weights() : imports();
    wait.kind = WaitKind::kPipe;
    fake.edit_tables().waits.push_back(wait);
  }
  Attribution attribution(fake);
  const std::vector<StartUp> found = find_start_ups(attribution, Waits(attribution));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_LE(found[0].slices.size(), 16u);
}

}  // namespace
}  // namespace dynprof
