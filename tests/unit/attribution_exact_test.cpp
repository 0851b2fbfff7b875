// Source E: compiles whose begin, end and phases come from edges, with and without samples.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/exact_compiles.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

struct Exact : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);
  FakeEdges edges{fake, thread};
  std::uint64_t start = fake.meta().start_ns;
  using List = std::vector<std::string>;

  // "stem begin-end xN" per compile in milliseconds; "~" if not exact.
  List found(const Attribution& attribution) {
    List list;
    for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
      const Compile& compile = attribution.compiles()[i];
      std::string text = attribution.file_stem(i);
      text += compile.exact ? " " : " ~";
      text += std::to_string((compile.first_ns - start) / 1'000'000) + '-' +
              std::to_string((compile.last_ns - start) / 1'000'000);
      if (compile.began_before) text += '<';
      if (compile.open_at_end) text += '>';
      list.push_back(text + " x" + std::to_string(compile.samples));
    }
    return list;
  }
  static List phases(const Attribution& attribution, CompileIndex index) {
    List list;
    const ExactCompile* timing = attribution.timing(index);
    if (timing == nullptr) return list;
    for (std::size_t i = 0; i < timing->phase_ns.size(); ++i) {
      if (timing->phase_ns[i] == 0) continue;
      list.push_back(std::string(phase_text(static_cast<Phase>(i))) + ' ' +
                     std::to_string(timing->phase_ns[i] / 1'000'000));
    }
    return list;
  }
  static std::uint64_t sum(const ExactCompile& compile) {
    return std::accumulate(compile.phase_ns.begin(), compile.phase_ns.end(), compile.nested_ns);
  }
  void sample_at_ms(std::uint64_t ms, StackId stack, ContextId context = 0,
                    std::uint8_t flags = 0) {
    fake.sample_at(start + ms * 1'000'000, thread, stack, context, flags);
  }
};

TEST_F(Exact, CompilesNoSampleHitHaveARow) {
  edges.forward("0/0");
  fake.pass_ms(7);
  edges.backward("0/0");
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 0-100 x0", "compile_backward_0_0 107-157 x0"}));
  EXPECT_EQ(phases(attribution, 0),
            (List{"dynamo 15", "guards 15", "aot_autograd 20", "inductor 30", "wait 20"}));
  EXPECT_EQ(phases(attribution, 1), (List{"aot_autograd 10", "inductor 40"}));
  for (const ExactCompile& compile : attribution.exact().all()) {
    EXPECT_EQ(sum(compile), compile.end_ns - compile.begin_ns);
  }
}

TEST_F(Exact, TorchsOwnPhasesWithTheirWholeLength) {
  edges.forward("0/0");
  Attribution attribution(fake);
  List list;
  for (const TorchPhaseTime& time : attribution.timing(0)->torch_phases) {
    list.push_back(std::string(fake.tables().strings[time.name]) + ' ' +
                   std::to_string(time.count) + ' ' + std::to_string(time.wall_ns / 1'000'000) +
                   ' ' + std::to_string(time.exclusive_ns / 1'000'000));
  }
  EXPECT_EQ(list, (List{"dynamo 1 100 5", "entire_frame_compile 1 95 0", "compile_attempt_0 1 80 0",
                        "bytecode_tracing 1 10 10", "backend_compile 1 70 0",
                        "create_aot_dispatcher_function 1 70 20", "inductor_compile 1 50 30",
                        "async_compile.wait 1 20 20", "build_guards 1 15 15"}));
}

TEST_F(Exact, AttemptsShareOutTheTime) {
  edges.compile("0/0", 0);
  edges.begin("dynamo");
  fake.pass_ms(1);
  edges.phase("compile_attempt_0", 10);
  fake.pass_ms(2);
  edges.compile("0/0", 1);
  edges.phase("compile_attempt_1", 20);
  edges.phase("build_guards", 5);
  edges.end();
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 0-13 x0", "_compile_inner_0_0_1 13-38 x0"}));
  EXPECT_EQ(phases(attribution, 0), (List{"dynamo 13"}));
  EXPECT_EQ(phases(attribution, 1), (List{"dynamo 20", "guards 5"}));
  EXPECT_EQ(attribution.compiles()[0].episode, attribution.compiles()[1].episode);
}

TEST_F(Exact, AttemptsOfTorch26AreReadAtEachPhase) {
  edges.compile("0/0", 0);
  edges.begin("dynamo");
  edges.begin("entire_frame_compile");
  fake.pass_ms(10);
  edges.compile("0/0", 1);
  edges.phase("backend_compile", 20);
  edges.end();
  edges.end();
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 ~0-10 x0", "_compile_inner_0_0_1 ~10-30 x0"}))
      << "where the second begins is not told exactly";
}

TEST_F(Exact, SamplesBetweenEdgesAreTheCompiles) {
  edges.forward("0/0");
  ContextId inside = torch.forward(0, 0, 0, 0x1000);
  sample_at_ms(5, torch.tracing(), inside);
  sample_at_ms(50, torch.lowering(), inside);
  sample_at_ms(70, torch.lowering());  // its marker was not readable
  sample_at_ms(80, fake.stack({fake.native("poll", "/lib/libc.so.6")}), 0, kSampleNoPython);
  sample_at_ms(90, torch.running());  // nothing on its stack says so
  sample_at_ms(110, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 0-100 x5"}));
  List each;
  attribution.for_each([&](const AttributedSample& at) {
    each.push_back(std::string(phase_text(at.phase)) + (at.origin == Origin::kExact    ? " E"
                                                        : at.origin == Origin::kFrames ? " F"
                                                                                       : ""));
  });
  EXPECT_EQ(each, (List{"dynamo F", "inductor F", "wait E", "guards E", "guards E", "runtime"}));
  EXPECT_EQ(attribution.unattributed(), 0u);
}

TEST_F(Exact, AThreadThatEndsRightAfterItsCompileIsComplete) {
  edges.forward("0/0");
  sample_at_ms(50, torch.lowering(), torch.forward(0, 0, 0, 0x1000));
  Attribution attribution(fake);
  EXPECT_TRUE(attribution.compiles()[0].complete());
  EXPECT_EQ(attribution.compiles()[0].wall_ns(10'000'000), 100'000'000u);
}

TEST_F(Exact, SamplesRightBesideTheEdgesAreItsToo) {
  fake.pass_ms(10);
  edges.forward("0/0");
  fake.pass_ms(200);
  edges.forward("0/1");
  ContextId first = torch.forward(0, 0, 0, 0x1000);
  sample_at_ms(8, torch.tracing(), first);  // in _compile, before torch opens its first phase
  sample_at_ms(50, torch.tracing(), first);
  sample_at_ms(112, torch.tracing(), first);
  sample_at_ms(150, torch.running());
  sample_at_ms(309, torch.tracing(), torch.forward(0, 1, 0, 0x1000));  // its only one
  sample_at_ms(450, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 10-110 x3", "_compile_inner_0_1 310-410 x1"}));
}

TEST_F(Exact, TwoCallsOfOneIdWithNoSampleBetween) {
  edges.forward("0/0");
  edges.forward("0/0");  // after torch._dynamo.reset()
  ContextId inside = torch.forward(0, 0, 0, 0x1000);
  for (std::uint64_t ms : {20, 60, 120, 160, 190}) sample_at_ms(ms, torch.tracing(), inside);
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 0-100 x2", "_compile_inner_0_0.2 100-200 x3"}));
}

TEST_F(Exact, OpenAtAttach) {
  edges.compile("0/0");
  edges.lose_begin("dynamo");
  edges.lose_begin("compile_attempt_0");
  fake.pass_ms(10);
  edges.watch();
  fake.pass_ms(30);
  edges.end();
  edges.end();
  sample_at_ms(5, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  sample_at_ms(20, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 ~5-40< x2"}));
}

TEST_F(Exact, WatchedLateIsNotFromBeforeIfTheThreadRanBefore) {
  edges.compile("0/0");
  edges.lose_begin("dynamo");
  fake.pass_ms(10);
  edges.watch();
  fake.pass_ms(30);
  edges.end();
  sample_at_ms(1, torch.running());
  sample_at_ms(5, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 ~5-40 x1"}));
}

TEST_F(Exact, OpenAtDetach) {
  edges.compile("0/0");
  edges.begin("dynamo");
  fake.pass_ms(10);
  edges.begin("build_guards");
  fake.pass_ms(10);
  edges.unwatch();
  sample_at_ms(15, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 ~0-20> x1"}));
  EXPECT_EQ(phases(attribution, 0), (List{"dynamo 10", "guards 10"}));
}

TEST_F(Exact, AnAttemptFromBeforeIsListedWithoutTimes) {
  edges.compile("0/0", 1);
  edges.lose_begin("dynamo");
  edges.lose_begin("compile_attempt_1");
  edges.watch();
  fake.pass_ms(30);
  edges.end();
  edges.end();
  sample_at_ms(20, torch.tracing(), torch.forward(0, 0, 1, 0x1000));
  Attribution attribution(fake);
  ASSERT_EQ(attribution.compiles().size(), 2u);
  EXPECT_EQ(attribution.file_stem(0), "_compile_inner_0_0");
  EXPECT_EQ(attribution.compiles()[0].first_ns, 0u);
  EXPECT_EQ(attribution.compiles()[1].attempt, 1);
  EXPECT_EQ(attribution.compiles()[0].episode, attribution.compiles()[1].episode);
}

TEST_F(Exact, ABackwardOnAnotherThread) {
  ThreadId autograd = fake.thread(100, 107, "pt_autograd_0");
  FakeEdges others(fake, autograd);
  CodeId user = fake.code("/m.py", "Block.forward", 3);
  edges.forward("0/0");
  others.backward("0/0", 2);
  sample_at_ms(20, torch.tracing(), torch.forward(0, 0, 0, 0x1000, user));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 0-100 x1", "compile_backward_0_0_2 100-150 x0"}));
  EXPECT_EQ(attribution.compiles()[1].thread, autograd);
  EXPECT_EQ(attribution.function(1).qualname, "Block.forward");
}

TEST_F(Exact, ACompileInAnotherTakesItsTime) {
  edges.compile("!0");
  edges.begin("compiled_autograd");
  fake.pass_ms(10);
  edges.forward("!0/1/0");
  edges.compile("!0");
  fake.pass_ms(10);
  edges.end();
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"compiled_autograd_!0 0-120 x0", "_compile_inner_!0_1_0 10-110 x0"}));
  EXPECT_EQ(phases(attribution, 0), (List{"dynamo 20"}));
  EXPECT_EQ(attribution.timing(0)->nested_ns, 100'000'000u);
  sample_at_ms(5, fake.stack({torch.module()}));
  sample_at_ms(50, fake.stack({torch.module()}));
  Attribution again(fake);
  EXPECT_EQ(again.compiles()[0].samples, 1u);
  EXPECT_EQ(again.compiles()[1].samples, 1u);
}

TEST_F(Exact, ANameThatComesWithTheEnd) {
  edges.compile("0/0", 0);
  edges.emit(EdgeKind::kPhaseBegin, "", 1);
  edges.emit(EdgeKind::kPhaseBegin, "", 2);
  fake.pass_ms(10);
  edges.emit(EdgeKind::kPhaseEnd, "compile_attempt_0", 2);
  edges.compile("0/0", 1);
  edges.emit(EdgeKind::kPhaseBegin, "", 2);
  fake.pass_ms(5);
  edges.emit(EdgeKind::kPhaseEnd, "compile_attempt_1", 2);
  edges.emit(EdgeKind::kPhaseEnd, "dynamo", 1);
  EXPECT_EQ(found(Attribution(fake)),
            (List{"_compile_inner_0_0 0-10 x0", "_compile_inner_0_0_1 10-15 x0"}));
}

TEST_F(Exact, LostEdgesLoseNoTimeOfTheWhole) {
  edges.compile("0/0");
  edges.begin("dynamo");
  fake.pass_ms(10);
  edges.begin("inductor_compile");
  fake.pass_ms(10);
  edges.lose_end();
  fake.pass_ms(10);
  edges.phase("build_guards", 5);
  edges.end();
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 0-35 x0"}));
  EXPECT_EQ(phases(attribution, 0), (List{"dynamo 30", "guards 5"}));
  EXPECT_EQ(attribution.spans().losses().ends, 1u);
}

TEST_F(Exact, EdgesWithoutAnIdTakeThatOfTheirSamples) {
  SpanEdge begin = edges.make(EdgeKind::kPhaseBegin, "dynamo", 1);
  begin.context = 0;
  SpanEdge end = begin;
  end.kind = EdgeKind::kPhaseEnd;
  end.time_ns += 50'000'000;
  fake.edge(begin);
  fake.edge(end);
  SpanEdge lone = begin, lone_end = end;  // and nothing tells the id of this one
  lone.time_ns += 90'000'000;
  lone_end.time_ns += 90'000'000;
  fake.edge(lone);
  fake.edge(lone_end);
  sample_at_ms(20, torch.tracing(), torch.forward(3, 0, 0, 0x1000));
  sample_at_ms(30, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_3_0 0-50 x1"}));
}

// Torch says no ids: the capture has no other than that of a compile in it, seen beside its edges.
TEST_F(Exact, ACaptureDoesNotTakeTheIdOfACompileInIt) {
  edges.begin("compiled_autograd");
  fake.pass_ms(10);
  edges.begin("dynamo");
  fake.pass_ms(10);
  edges.end();
  fake.pass_ms(10);
  edges.end();
  Marker inner = FakeRecording::compile_marker(1, 0, 0x2000, 0, 0);
  ContextId context = fake.context({inner});
  sample_at_ms(9, torch.tracing(), context);
  sample_at_ms(15, torch.tracing(), context);
  sample_at_ms(21, torch.tracing(), context);
  EXPECT_EQ(found(Attribution(fake)), (List{"_compile_inner_!0_1_0 10-20 x3"}));
}

TEST_F(Exact, ThreadsWithoutEdgesStayAsTheyAre) {
  ThreadId other = fake.thread(100, 101);
  edges.forward("0/0");
  fake.sample_at(start + 20'000'000, other, torch.tracing(), torch.forward(1, 0, 0, 0x1000));
  fake.sample_at(start + 30'000'000, other, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 0-100 x0", "_compile_inner_1_0 ~20-20< x1"}));
}

TEST_F(Exact, DeeperThanThreadLocalsAreRead) {
  edges.compile("0/0");
  edges.begin("dynamo");
  std::vector<std::string> read{"dynamo"};
  for (int i = 0; i < 20; ++i) {
    edges.begin("inductor_compile");
    if (read.size() < 16) read.push_back("inductor_compile");
  }
  edges.begin("compile_file");
  fake.pass_ms(10);
  sample_at_ms(5, torch.lowering(), fake.torch_context(fake.torch_state("0/0", 0, read)));
  read.pop_back();
  sample_at_ms(6, torch.lowering(), fake.torch_context(fake.torch_state("0/0", 0, read)));
  for (int i = 0; i < 22; ++i) edges.end();
  std::vector<Phase> phases;
  Attribution(fake).for_each([&](const AttributedSample& at) { phases.push_back(at.phase); });
  EXPECT_EQ(phases, (std::vector<Phase>{Phase::kKernelCompile, Phase::kInductor}));
}

TEST_F(Exact, CpuTimeAtBothEnds) {
  edges.cpu_ns = 5'000'000;
  edges.compile("0/0");
  edges.begin("dynamo");
  fake.pass_ms(10);
  edges.cpu_ns = 9'000'000;
  edges.end();
  Attribution attribution(fake);
  EXPECT_EQ(attribution.timing(0)->begin_cpu_ns, 5'000'000u);
  EXPECT_EQ(attribution.timing(0)->end_cpu_ns, 9'000'000u);
}

}  // namespace
}  // namespace dynprof
