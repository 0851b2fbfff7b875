// Whose time a wait was, and what profiles and traces make of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "symbolizer/attribution/waits.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/export/compiles_json.h"
#include "symbolizer/profile/analysis.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kMs = 1'000'000;

// A thread that compiles for 100 ms from the start: 40 ms on a CPU, then 50 ms waiting for a child, of
// which 10 ms runnable, then 10 ms preempted.
class WaitsTest : public testing::Test {
 protected:
  WaitsTest() {
    fake.edit_meta().period_ns = 10 * kMs;
    thread = fake.thread(100, 100);
    main_frame = fake.python("train.py", "main", 10, 12);
    compile_frame = fake.python("torch/_dynamo/convert_frame.py", "_compile", 100, 110);
    wait_frame = fake.python("subprocess.py", "Popen.wait", 200, 210);
    running = fake.stack({main_frame, compile_frame});
    waiting = fake.stack({main_frame, compile_frame, wait_frame});
    start = fake.now();
    const ContextId inside = fake.context({FakeRecording::compile_marker(0, 0, 1)});
    fake.ran(thread, start, 0);
    fake.sample(thread, running, inside, 0, 4);
    add(WaitKind::kChild, 40, 50, 10, waiting, 40);
    add(WaitKind::kPreempted, 90, 10, 10, 0, 40);
    fake.sample_at(start + 100 * kMs, thread, running, inside, 0);
    fake.ran(thread, start + 110 * kMs, 50 * kMs);
    fake.sample_at(start + 110 * kMs, thread, fake.stack({main_frame}));
  }

  void add(WaitKind kind, std::uint64_t at_ms, std::uint64_t length_ms, std::uint64_t runnable_ms,
           StackId stack, std::uint64_t cpu_ms) {
    Wait wait{.begin_ns = start + at_ms * kMs,
              .span_ns = length_ms * kMs,
              .length_ns = length_ms * kMs,
              .runnable_ns = runnable_ms * kMs,
              .cpu_ns = cpu_ms * kMs};
    wait.thread = thread;
    wait.stack = stack;
    wait.kind = kind;
    fake.edit_tables().waits.push_back(wait);
  }

  FakeRecording fake;
  ThreadId thread = 0;
  FrameId main_frame = 0, compile_frame = 0, wait_frame = 0;
  StackId running = 0, waiting = 0;
  std::uint64_t start = 0;
};

TEST_F(WaitsTest, AWallIsSharedOut) {
  Attribution attribution(fake);
  ASSERT_EQ(attribution.compiles().size(), 1u);
  Waits waits(attribution);
  const CompileWaits& of = waits.of(0);
  ASSERT_TRUE(of.known);
  EXPECT_EQ(of.wall_ns, 110 * kMs);
  EXPECT_EQ(of.on_cpu_ns, 50 * kMs);
  EXPECT_EQ(of.wait_ns, 40 * kMs);
  EXPECT_EQ(of.runnable_ns, 20 * kMs);
  EXPECT_EQ(of.by_kind[static_cast<std::size_t>(WaitKind::kChild)], 40 * kMs);
  EXPECT_EQ(of.named_ns, of.wait_ns);
  ASSERT_EQ(of.places.size(), 1u);
  EXPECT_EQ(of.places[0].frame, wait_frame);
  EXPECT_EQ(waits.owner(1).compile, 0u);
}

TEST_F(WaitsTest, AWaitBeyondTheEndIsCutThere) {
  add(WaitKind::kPreempted, 104, 20, 20, waiting, 40);
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  const StackCounts& counts = analysis.counts();
  const Waits waits(attribution);
  const CompileWaits& of = waits.of(0);
  EXPECT_EQ(of.runnable_ns, 26 * kMs);
  auto total = [&](CompileIndex compile) {
    std::uint64_t ns = 0;
    for (const StackCount& count : counts.waits_of(compile)) ns += count.ns;
    return ns;
  };
  EXPECT_EQ(total(0), of.wait_ns + of.runnable_ns);
  EXPECT_EQ(total(kNoCompile), 14 * kMs);
}

TEST_F(WaitsTest, AThreadThatWasNotWatchedIsNotKnown) {
  fake.edit_tables().waits.erase(fake.edit_tables().waits.begin());
  Attribution attribution(fake);
  const Waits waits(attribution);
  EXPECT_FALSE(waits.of(0).known);
}

TEST_F(WaitsTest, AProfileIsOfWallTimeUnlessAskedForCpu) {
  Attribution attribution(fake);
  const Analysis wall(attribution);
  EXPECT_EQ(wall.of(0).ns, 110 * kMs);
  const Analysis cpu(attribution, true);
  EXPECT_EQ(cpu.of(0).ns, 50 * kMs);
  EXPECT_EQ(cpu.of(0).samples, 5u);
}

TEST_F(WaitsTest, TheLedgerHasThem) {
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  const Json compile = Json::parse(compiles_json(analysis))["compiles"][0];
  EXPECT_EQ(compile["wait_s"], 0.04);
  EXPECT_EQ(compile["on_cpu_s"], 0.05);
  EXPECT_EQ(compile["runnable_s"], 0.02);
  EXPECT_EQ(compile["wait_kinds"]["child"], 0.04);
  ASSERT_EQ(compile["waits"].size(), 1u);
  EXPECT_EQ(compile["waits"][0]["function"], "Popen.wait");
}

TEST_F(WaitsTest, TheReportHasThem) {
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  const std::string report = render_report(analysis, {});
  EXPECT_THAT(report, HasSubstr("Wait s"));
  EXPECT_THAT(report, HasSubstr("child 0.04 s (1 times)"));
  EXPECT_THAT(report, HasSubstr("Popen.wait subprocess.py:210"));
  fake.edit_tables().waits.clear();
  Attribution without(fake);
  const Analysis bare(without);
  EXPECT_THAT(render_report(bare, {}), Not(HasSubstr("Wait")));
}

class TextSink final : public ByteSink {
 public:
  explicit TextSink(std::string& text) : text_(text) {}
  void write(std::string_view bytes) override { text_ += bytes; }
  bool failed() const override { return false; }
  Result<void> finish() override { return {}; }

 private:
  std::string& text_;
};

TEST_F(WaitsTest, TheTraceShowsWhatRanAndWhatWaited) {
  Attribution attribution(fake);
  std::string text;
  ASSERT_TRUE(
      write_chrome_trace(Analysis(attribution), {}, std::make_unique<TextSink>(text)).has_value());
  const Json trace = Json::parse(text);
  double begin_wait = 0, end_wait = 0;
  std::vector<Json> rows;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["tid"] != 100) continue;
    rows.push_back(event);
    if (event["name"] != "wait: child") continue;
    EXPECT_EQ(event["cat"], "idle");
    begin_wait = event["ts"];
    end_wait = begin_wait + event["dur"].get<double>();
  }
  EXPECT_NEAR(begin_wait, 40'000, 1);
  EXPECT_NEAR(end_wait, 90'000, 1);
  int preempted = 0;
  for (const Json& event : rows) {
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    preempted += event["name"] == "preempted";
    // Slices nest: each lies in the wait, around it, or beside it.
    const bool inside = begin >= begin_wait && end <= end_wait;
    const bool around = begin <= begin_wait && end >= end_wait;
    EXPECT_TRUE(inside || around || end <= begin_wait || begin >= end_wait) << event;
    // The function that waits was not seen before its wait.
    if (event["name"].get<std::string>().find("Popen.wait") == 0) {
      EXPECT_NEAR(begin, 40'000, 1);
    }
  }
  EXPECT_EQ(preempted, 1);
}

}  // namespace
}  // namespace dynprof
