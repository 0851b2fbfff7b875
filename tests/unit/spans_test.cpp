#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/spans.h"
#include "tests/unit/fake_edges.h"

namespace dynprof {
namespace {

struct SpansTest : testing::Test {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100);
  FakeEdges edges{fake, thread};
  std::uint64_t start = fake.meta().start_ns;

  std::vector<TorchReading> readings;
  Spans spans() {
    readings = read_torch_states(fake.tables());
    return Spans(fake.tables(), readings);
  }
  // "name 10-30" per span in milliseconds from the start; '?' marks a bound, '*' a whole compile.
  std::vector<std::string> phases(std::size_t row = 0) {
    std::vector<std::string> list;
    const Spans made = spans();
    const std::vector<PhaseSpan>& all = made.threads()[row].phases;
    for (SpanIndex i = 0; i < all.size(); ++i) {
      const PhaseSpan& span = all[i];
      std::string text = std::string(fake.tables().strings[span.name]);
      if (text.empty()) text = "-";
      text += ' ' + std::to_string((span.begin_ns - start) / 1'000'000);
      if (!span.begin_known) text += '?';
      text += '-' + std::to_string((span.end_ns - start) / 1'000'000);
      if (!span.end_known) text += '?';
      if (span.open_at_end) text += '>';
      if (span.root == i) text += " *" + span.id.text();
      list.push_back(text);
    }
    return list;
  }
  using List = std::vector<std::string>;
};

TEST_F(SpansTest, PhasesNest) {
  edges.compile("0/0");
  edges.begin("dynamo");
  fake.pass_ms(2);
  edges.begin("entire_frame_compile");
  edges.phase("build_guards", 3);
  fake.pass_ms(1);
  edges.end();
  edges.end();
  edges.compile("0/1");
  edges.phase("dynamo", 4);
  EXPECT_EQ(phases(), (List{"dynamo 0-6 *0/0", "entire_frame_compile 2-6", "build_guards 2-5",
                            "dynamo 6-10 *0/1"}));
  EXPECT_EQ(spans().losses().begins + spans().losses().ends, 0u);
}

TEST_F(SpansTest, OnePhaseMayEndWithAllThatIsInIt) {
  edges.compile("0/0");
  edges.begin("dynamo");
  edges.begin("entire_frame_compile");
  fake.pass_ms(5);
  edges.end();  // torch resets its list: both at once
  edges.end();
  EXPECT_EQ(phases(), (List{"dynamo 0-5 *0/0", "entire_frame_compile 0-5"}));
}

TEST_F(SpansTest, PhasesOpenWhenWatchingBegan) {
  fake.pass_ms(10);
  edges.compile("0/0");
  edges.lose_begin("dynamo");
  edges.lose_begin("entire_frame_compile");
  edges.watch();
  fake.pass_ms(5);
  edges.phase("build_guards", 1);
  edges.end();
  edges.end();
  EXPECT_EQ(phases(),
            (List{"dynamo 10?-16 *0/0", "entire_frame_compile 10?-16", "build_guards 15-16"}));
  EXPECT_EQ(spans().losses().begins + spans().losses().ends, 0u);
}

TEST_F(SpansTest, PhasesOpenWhenWatchingEnded) {
  edges.compile("0/0");
  edges.begin("dynamo");
  fake.pass_ms(4);
  edges.begin("build_guards");
  fake.pass_ms(2);
  edges.unwatch();
  EXPECT_EQ(phases(), (List{"dynamo 0-6?> *0/0", "build_guards 4-6?>"}));
}

TEST_F(SpansTest, PhasesOpenAtTheLastEdge) {
  edges.compile("0/0");
  edges.begin("dynamo");
  fake.pass_ms(4);
  edges.begin("build_guards");
  EXPECT_EQ(phases(), (List{"dynamo 0-4?> *0/0", "build_guards 4-4?>"}));
}

TEST_F(SpansTest, WatchingAgainGoesOnWithTheSameCompile) {
  edges.compile("0/0", 1);
  edges.begin("dynamo");
  edges.begin("compile_attempt_1");
  edges.begin("compile_file");
  fake.pass_ms(3);
  edges.unwatch();
  fake.pass_ms(2);
  edges.watch();
  fake.pass_ms(1);
  edges.end();
  edges.end();
  edges.end();
  EXPECT_EQ(phases(), (List{"dynamo 0-6 *0/0", "compile_attempt_1 0-6", "compile_file 0-3?>",
                            "compile_file 5?-6"}));
}

TEST_F(SpansTest, WatchingAgainInAnotherCompileIsAnother) {
  edges.compile("0/0");
  edges.begin("dynamo");
  fake.pass_ms(3);
  edges.unwatch();
  edges.compile("1/0");
  edges.watch();
  fake.pass_ms(2);
  edges.end();
  EXPECT_EQ(phases(), (List{"dynamo 0-3?> *0/0", "dynamo 3?-5 *1/0"}));
}

TEST_F(SpansTest, ALostEndIsNotMadeUp) {
  edges.compile("0/0");
  edges.begin("dynamo");
  edges.begin("build_guards");
  fake.pass_ms(2);
  edges.lose_end();
  fake.pass_ms(3);
  edges.phase("gc", 1);
  edges.end();
  EXPECT_EQ(phases(), (List{"dynamo 0-6 *0/0", "build_guards 0-0?", "gc 5-6"}));
  EXPECT_EQ(spans().losses().ends, 1u);
}

TEST_F(SpansTest, ALostBeginIsNotMadeUp) {
  edges.compile("0/0");
  edges.begin("dynamo");
  fake.pass_ms(2);
  edges.lose_begin("build_guards");
  fake.pass_ms(2);
  edges.phase("gc", 1);
  edges.end();
  edges.end();
  EXPECT_EQ(phases(), (List{"dynamo 0-5 *0/0", "build_guards 4?-5", "gc 4-5"}))
      << "its name came with its end";
  EXPECT_EQ(spans().losses().begins, 1u);
}

TEST_F(SpansTest, AnEndAloneIsNothing) {
  edges.compile("0/0");
  edges.lose_begin("dynamo");
  edges.end();
  edges.emit(EdgeKind::kPhaseEnd, "x", 0);
  edges.emit(EdgeKind::kPhaseEnd, "x", 0xffffffff);
  edges.emit(EdgeKind::kPhaseBegin, "x", 0xffffffff);
  edges.emit(EdgeKind::kRegionEnd, "x", 0);
  edges.emit(EdgeKind::kInlineEnd, "", 0);
  EXPECT_EQ(phases(), List{});
  EXPECT_EQ(spans().losses().begins, 6u);
}

TEST_F(SpansTest, AnEndOfAnotherNameEndsNothingElse) {
  edges.compile("0/0");
  edges.begin("dynamo");
  edges.begin("gc");
  fake.pass_ms(2);
  edges.lose_end();
  edges.lose_begin("build_guards");
  fake.pass_ms(2);
  edges.end();
  edges.end();
  EXPECT_EQ(phases(), (List{"dynamo 0-4 *0/0", "gc 0-0?"}));
}

TEST_F(SpansTest, TimeThatGoesBackCountsAsNonePassed) {
  edges.compile("0/0");
  edges.begin("dynamo");
  SpanEdge early = edges.make(EdgeKind::kPhaseBegin, "gc", 2);
  early.time_ns = 5;
  fake.edge(early);
  edges.lose_begin("gc");
  fake.pass_ms(1);
  edges.end();
  edges.end();
  EXPECT_EQ(phases(), (List{"dynamo 0-1 *0/0", "gc 0-1"}));
}

TEST_F(SpansTest, ACompileInsideAnotherIsItsOwn) {
  edges.compile("!0");
  edges.begin("compiled_autograd");
  fake.pass_ms(1);
  edges.compile("!0/1/0");
  edges.begin("dynamo");
  edges.begin("entire_frame_compile");
  fake.pass_ms(2);
  edges.end();
  edges.end();
  edges.compile("!0");
  fake.pass_ms(1);
  edges.end();
  EXPECT_EQ(phases(),
            (List{"compiled_autograd 0-4 *!0", "dynamo 1-3 *!0/1/0", "entire_frame_compile 1-3"}));
}

TEST_F(SpansTest, OneCompileInsideAnotherWhenWatchingBegan) {
  edges.compile("0/1");
  edges.lose_begin("dynamo");
  edges.lose_begin("entire_frame_compile");
  edges.lose_begin("dynamo");
  edges.watch();
  fake.pass_ms(2);
  edges.end();
  edges.compile("0/0");
  edges.phase("build_guards", 1);
  edges.end();
  edges.end();
  EXPECT_EQ(phases(), (List{"dynamo 0?-3 *0/0", "entire_frame_compile 0?-3", "dynamo 0?-2 *0/1",
                            "build_guards 2-3"}));
}

TEST_F(SpansTest, AnExportLearnsItsIdFromWhatIsInside) {
  edges.begin("fullgraph_capture");
  edges.compile("0/0");
  edges.phase("compile_attempt_0", 3);
  edges.no_compile();
  edges.end();
  edges.compile("0/0");
  edges.begin("compile_fx_aot");
  edges.phase("inductor_compile", 2);
  edges.end();
  EXPECT_EQ(phases(), (List{"fullgraph_capture 0-3 *0/0", "compile_attempt_0 0-3",
                            "compile_fx_aot 3-5 *0/0", "inductor_compile 3-5"}));
}

TEST_F(SpansTest, APhaseOfANewNameIsACompileIfTorchSaysSo) {
  edges.compile("2/0");
  edges.begin("renamed_by_torch");
  edges.phase("build_guards", 2);
  edges.end();
  edges.no_compile();
  edges.phase("compile_file", 2);  // a thread of Inductor's pool has no id
  EXPECT_EQ(phases(), (List{"renamed_by_torch 0-2 *2/0", "build_guards 0-2", "compile_file 2-4"}));
}

TEST_F(SpansTest, AnUnknownPhaseCountsForTheOneAroundIt) {
  edges.compile("0/0");
  edges.begin("dynamo");
  edges.begin("inductor_compile");
  edges.phase("UserPartitioner", 2);
  const Spans made = spans();
  const std::vector<PhaseSpan>& all = made.threads()[0].phases;
  EXPECT_EQ(all[2].phase, Phase::kInductor);
}

TEST_F(SpansTest, ThreadsAreApartAndARenamedOneIsStillItself) {
  ThreadId other = fake.thread(100, 101);
  ThreadId renamed = fake.thread(100, 100, "renamed");
  FakeEdges others(fake, other);
  edges.compile("0/0");
  others.compile("1/0");
  edges.begin("dynamo");
  fake.pass_ms(1);
  others.begin("dynamo");
  fake.pass_ms(1);
  SpanEdge end = edges.make(EdgeKind::kPhaseEnd, "dynamo", 1);
  end.thread = renamed;
  fake.edge(end);
  fake.pass_ms(1);
  others.end();
  EXPECT_EQ(phases(0), (List{"dynamo 0-2 *0/0"}));
  EXPECT_EQ(phases(1), (List{"dynamo 1-3 *1/0"}));
}

// ---- runs and inlined calls ----------------------------------------------------------------------

TEST_F(SpansTest, RunsOfRegions) {
  edges.region_begin("Torch-Compiled Region: 1/0");
  fake.pass_ms(1);
  edges.region_begin("Torch-Compiled Region: !2/0/1");
  edges.region_end();
  fake.pass_ms(1);
  edges.region_end();
  edges.region_begin("CompiledFunctionBackward: 1/0");
  const Spans made = spans();
  const std::vector<RegionRun>& runs = made.threads()[0].runs;
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].id.text(), "1/0");
  EXPECT_EQ(runs[0].end_ns - runs[0].begin_ns, 2'000'000u);
  EXPECT_TRUE(runs[0].end_known);
  EXPECT_EQ(runs[1].id.text(), "!2/0/1");
  EXPECT_FALSE(runs[1].backward);
  EXPECT_TRUE(runs[2].backward);
  EXPECT_FALSE(runs[2].end_known);
}

TEST_F(SpansTest, ARunThatWasLeftHasNoEnd) {
  edges.region_begin("Torch-Compiled Region: 1/0");
  edges.region_begin("Torch-Compiled Region: 2/0");
  fake.pass_ms(5);
  edges.emit(EdgeKind::kRegionEnd, "", kLeftBefore);
  edges.region_end();
  const Spans made = spans();
  const std::vector<RegionRun>& runs = made.threads()[0].runs;
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_TRUE(runs[0].end_known);
  EXPECT_FALSE(runs[1].end_known);
  EXPECT_EQ(runs[1].end_ns, runs[1].begin_ns);
  EXPECT_EQ(made.losses().ends, 1u);
}

TEST_F(SpansTest, IdsOfRegions) {
  EXPECT_EQ(region_id("Torch-Compiled Region: 10/3").text(), "10/3");
  for (const char* text : {"", "1/0", "Torch-Compiled Region: ", "Torch-Compiled Region: 1",
                           "Torch-Compiled Region: 1/0x", "Torch-Compiled Region: -1/0",
                           "Torch-Compiled Region: 99999999999/0", "Torch-Compiled Region: !1/"}) {
    EXPECT_FALSE(is_valid(region_id(text))) << text;
  }
}

TEST_F(SpansTest, InlinedCallsNest) {
  CodeId f = fake.code("/m.py", "f", 1), g = fake.code("/m.py", "g", 5);
  auto inlined = [&](EdgeKind kind, CodeId code) {
    SpanEdge edge = edges.make(kind, "", 0);
    edge.code = code;
    fake.edge(edge);
    fake.pass_ms(1);
  };
  edges.compile("0/0");
  inlined(EdgeKind::kInlineBegin, f);
  inlined(EdgeKind::kInlineBegin, g);
  inlined(EdgeKind::kInlineEnd, g);
  inlined(EdgeKind::kInlineBegin, g);  // its end is lost
  inlined(EdgeKind::kInlineEnd, f);
  const Spans made = spans();
  const std::vector<InlineCall>& calls = made.threads()[0].inlined;
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].parent, kNoIndex);
  EXPECT_EQ(calls[1].parent, 0u);
  EXPECT_EQ(calls[2].parent, 0u);
  EXPECT_EQ(calls[1].end_ns - calls[1].begin_ns, 1'000'000u);
  EXPECT_TRUE(calls[0].end_known && calls[1].end_known);
  EXPECT_FALSE(calls[2].end_known);
  EXPECT_EQ(calls[0].id.text(), "0/0");
}

}  // namespace
}  // namespace dynprof
