// Source T: what torch's thread-locals add to the frames, and what they cover alone.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

struct ThreadLocals : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);
  using List = std::vector<std::string>;

  const List kForward{"dynamo", "entire_frame_compile", "compile_attempt_0"};

  // A sample where T says this.
  void says(StackId stack, const std::string& id, std::int32_t attempt, const List& phases,
            std::vector<Marker> markers = {}, std::uint64_t count = 1, std::uint8_t flags = 0) {
    TorchState state = fake.torch_state(id, attempt, phases);
    fake.sample(thread, stack, fake.torch_context(state, std::move(markers)), flags, count);
  }
  static std::vector<Marker> markers(std::int32_t frame, std::int32_t compile, std::int32_t attempt,
                                     std::uint64_t instance) {
    return {FakeRecording::compile_marker(frame, compile, instance),
            FakeRecording::attempt_marker(attempt, instance + 1)};
  }
  static List with(List phases, const List& more) {
    phases.insert(phases.end(), more.begin(), more.end());
    return phases;
  }
  static List found(const Attribution& attribution) {
    List list;
    for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
      list.push_back(attribution.file_stem(i) + " x" +
                     std::to_string(attribution.compiles()[i].samples));
    }
    return list;
  }
  // "0/0 dynamo T" per sample.
  static List per_sample(const Attribution& attribution) {
    List list;
    attribution.for_each([&](const AttributedSample& at) {
      std::string text = at.compile == kNoCompile ? "-" : attribution.label(at.compile);
      text += std::string(" ") + phase_text(at.phase);
      if (at.origin == Origin::kThreadLocals) text += " T";
      if (at.origin == Origin::kFrames) text += " F";
      if (at.origin == Origin::kExact) text += " E";
      list.push_back(text);
    });
    return list;
  }
};

TEST_F(ThreadLocals, GoFirstAndGiveThePhase) {
  says(torch.lowering(), "0/0", 0, with(kForward, {"backend_compile", "aot_collect_metadata"}),
       markers(0, 0, 0, 0x1000));
  says(torch.lowering(), "0/0", 0, with(kForward, {"backend_compile", "a name of tomorrow"}),
       markers(0, 0, 0, 0x1000));
  says(torch.lowering(), "0/0", 0, {}, markers(0, 0, 0, 0x1000));
  says(torch.lowering(), "", 0, {}, markers(0, 0, 0, 0x1000));  // T is not set yet
  Attribution attribution(fake);
  EXPECT_EQ(per_sample(attribution),
            (List{"0/0 aot_autograd T", "0/0 backend T", "0/0 inductor T", "0/0 inductor F"}));
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x4"}));
  EXPECT_EQ(attribution.agreement().both, 3u);
  EXPECT_EQ(attribution.agreement().differ, 0u);
}

TEST_F(ThreadLocals, AStaleReadIsNotUsed) {
  TorchState stale = fake.torch_state("7/7", 0, {"dynamo"});
  stale.status = TorchStatus::kStale;
  fake.sample(thread, torch.tracing(), fake.torch_context(stale, markers(0, 0, 0, 0x1000)));
  fake.sample(thread, torch.running(), fake.torch_context(stale));
  Attribution attribution(fake);
  EXPECT_EQ(per_sample(attribution), (List{"0/0 dynamo F", "- runtime"}));
  EXPECT_EQ(attribution.agreement().both, 0u);
}

TEST_F(ThreadLocals, DisagreementIsCountedAndThreadLocalsWin) {
  says(torch.tracing(), "0/0", 0, kForward, markers(0, 0, 0, 0x1000), 5);
  says(torch.tracing(), "1/0", 0, kForward, markers(0, 0, 0, 0x1000), 2);
  says(torch.tracing(), "0/0", 1, kForward, markers(0, 0, 0, 0x1000));  // another attempt
  says(torch.running(), "", 0, {});
  Attribution attribution(fake);
  EXPECT_EQ(attribution.agreement().both, 8u);
  EXPECT_EQ(attribution.agreement().differ, 3u);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 x5", "_compile_inner_1_0 x2", "_compile_inner_0_0_1 x1"}));
}

TEST_F(ThreadLocals, LagBehindTheFrameOfANestedCompile) {
  std::vector<Marker> nested = markers(0, 0, 0, 0x1000);
  nested.push_back(FakeRecording::compile_marker(1, 0, 0x2000));
  says(torch.tracing(), "0/0", 0, kForward, markers(0, 0, 0, 0x1000), 2);
  says(torch.tracing(), "0/0", 0, kForward, nested);
  says(torch.tracing(), "1/0", 0, with(kForward, {"dynamo"}), nested, 3);
  says(torch.running(), "", 0, {});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x2", "_compile_inner_1_0 x4"}));
  EXPECT_EQ(attribution.agreement().both, 5u);
  EXPECT_EQ(attribution.agreement().differ, 0u);
}

TEST_F(ThreadLocals, NameWhatFramesHide) {
  StackId hidden = torch.tracing();  // its marker has not been read yet
  says(hidden, "0/0", 0, kForward);
  says(hidden, "0/0", 0, kForward, markers(0, 0, 0, 0x1000), 2);
  says(fake.stack({torch.inductor()}), "0/0", 0, kForward, {}, 1, kSampleTruncated);
  says(fake.stack({fake.native("poll", "/lib/libc.so.6")}), "0/0", 0, kForward, {}, 1,
       kSampleNoPython);
  says(hidden, "0/0", 0, kForward, markers(0, 0, 0, 0x1000));
  says(torch.running(), "", 0, {});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x6"})) << "one compile, not several";
  EXPECT_EQ(attribution.unattributed(), 0u);
}

TEST_F(ThreadLocals, ExportAndAotInductorHaveNoFrames) {
  StackId capture = fake.stack({torch.module(), torch.compile_frame()});
  StackId aot = fake.stack({torch.module(), torch.inductor()});
  Marker attempt = FakeRecording::attempt_marker(0, 0x100);
  says(torch.running(), "", 0, {});
  says(capture, "0/0", 0, {"fullgraph_capture", "compile_attempt_0", "bytecode_tracing"}, {attempt},
       3);
  says(torch.running(), "", 0, {});
  says(aot, "0/0", 0, {"compile_fx_aot", "inductor_compile"}, {}, 4);
  says(torch.running(), "", 0, {});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"export_0_0 x3", "export_0_0.2 x4"}));
  EXPECT_EQ(attribution.label(1), "export 0/0.2");
  EXPECT_EQ(attribution.agreement().both, 0u);
}

TEST_F(ThreadLocals, NameAnExportFromItsFirstSampleOn) {
  StackId capture = fake.stack({torch.module(), torch.compile_frame()});
  auto seen = [&](std::uint64_t instance, std::uint64_t count) {
    ContextId context = fake.context({FakeRecording::attempt_marker(0, instance)});
    fake.sample(thread, capture, context, 0, count);
  };
  says(torch.running(), "", 0, {});
  seen(0x50, 2);  // another call, which T never told of
  seen(0x100, 2);
  says(capture, "0/0", 0, {"fullgraph_capture", "compile_attempt_0"},
       {FakeRecording::attempt_marker(0, 0x100)}, 3);
  says(torch.running(), "", 0, {});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"export_0_0 x5"}));
  EXPECT_EQ(attribution.unattributed(), 2u);
  EXPECT_EQ(attribution.compiles()[0].first_ns, fake.meta().start_ns + 30'000'000);
}

TEST_F(ThreadLocals, OneAfterTheOtherAreTwoByTheirPhase) {
  StackId aot = fake.stack({torch.module(), torch.inductor()});
  says(aot, "0/0", 0, {"fullgraph_capture"}, {}, 2);
  says(aot, "0/0", 0, {"compile_fx_aot"}, {}, 2);
  EXPECT_EQ(found(Attribution(fake)), (List{"export_0_0 x2", "export_0_0.2 x2"}));
}

TEST_F(ThreadLocals, TheCaptureOfCompiledAutogradAndWhatCompilesInIt) {
  StackId capture = fake.stack({torch.module()});
  says(torch.running(), "", 0, {});
  says(capture, "!0", 0, {"compiled_autograd"}, {}, 2);
  Marker inner = FakeRecording::compile_marker(1, 0, 0x2000, 0, 0);
  says(torch.tracing(), "!0", 0, {"compiled_autograd"}, {inner});  // T comes a moment later
  says(torch.tracing(), "!0/1/0", 0, {"compiled_autograd", "dynamo", "entire_frame_compile"},
       {inner}, 3);
  says(capture, "!0", 0, {"compiled_autograd"}, {}, 2);
  says(torch.running(), "", 0, {});
  says(torch.tracing(), "!0/3/0", 0, {"dynamo"}, {}, 1);
  says(torch.running(), "", 0, {});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"compiled_autograd_!0 x4", "_compile_inner_!0_1_0 x4",
                                      "_compile_inner_!0_3_0 x1"}));
  EXPECT_EQ(attribution.compiles()[0].kind, CompileKind::kCompiledAutograd);
  EXPECT_TRUE(attribution.compiles()[0].complete());
  EXPECT_EQ(attribution.agreement().differ, 0u);
}

// With no frame to tell it: a moment before its own phase opens, and after that closed.
TEST_F(ThreadLocals, ACompileInACaptureIsAForwardAtItsEdgesToo) {
  StackId stack = fake.stack({torch.module()});
  says(stack, "!0/1/0", 0, {"compiled_autograd"}, {}, 1);
  says(stack, "!0/1/0", 0, {"compiled_autograd", "dynamo", "entire_frame_compile"}, {}, 3);
  says(stack, "!0/1/0", 0, {"compiled_autograd"}, {}, 1);
  EXPECT_EQ(found(Attribution(fake)), (List{"_compile_inner_!0_1_0 x5"}));
}

// No frame shows the kind. An export of an older torch has no phase either.
TEST_F(ThreadLocals, APhaseThatOpensAfterTheIdShowsTheKind) {
  StackId stack = fake.stack({torch.module(), torch.inductor()});
  says(torch.running(), "", 0, {});
  says(stack, "0/0", 0, {}, {}, 1);
  says(stack, "0/0", 0, kForward, {}, 3);
  says(torch.running(), "", 0, {});
  says(stack, "0/0", 0, {}, {}, 1);
  says(stack, "0/0", 0, {"entire_backward_compile"}, {}, 2);
  says(torch.running(), "", 0, {});
  says(stack, "1/0", 0, {}, {}, 2);
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 x4", "compile_backward_0_0 x3", "export_1_0 x2"}));
}

TEST_F(ThreadLocals, NameACaptureWhileItsGraphRunsWhichIsNoCompile) {
  says(fake.stack({torch.module()}), "!0", 0, {"compiled_autograd"}, {}, 2);
  says(torch.tracing(), "!0/1/0", 0, {"dynamo", "entire_frame_compile"}, {}, 3);
  says(torch.running(), "!0", 0, {}, {}, 4);
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"compiled_autograd_!0 x2", "_compile_inner_!0_1_0 x3"}));
  EXPECT_EQ(attribution.runtime(), 4u);
}

TEST_F(ThreadLocals, DistinguishABackwardFromItsForward) {
  StackId plain = fake.stack({torch.module(), torch.inductor()});
  says(torch.running(), "", 0, {});
  says(plain, "0/0", 1, with(kForward, {"backend_compile"}), {}, 2);
  says(plain, "0/0", 1, {"entire_backward_compile", "compile_fx.<locals>.bw_compiler"}, {}, 3);
  says(torch.running(), "", 0, {});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x0", "_compile_inner_0_0_1 x2",
                                      "compile_backward_0_0_1 x3"}));
}

TEST_F(ThreadLocals, ABackwardsOwnMarkerJoinsIt) {
  Marker marker = FakeRecording::backward_marker(0, 0, 0, 0x2000);
  // Before torch opens the phase the marker is there and T has the id.
  says(torch.lowering_backward(), "0/0", 0, {}, {marker});
  says(torch.lowering_backward(), "0/0", 0, {"entire_backward_compile"}, {marker}, 2);
  says(torch.running(), "", 0, {});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"compile_backward_0_0 x3"}));
  EXPECT_EQ(per_sample(attribution)[1], "backward 0/0 aot_autograd T");
  EXPECT_EQ(attribution.agreement().both, 3u);
}

TEST_F(ThreadLocals, TheSameIdAgainIsARepeat) {
  for (int round = 0; round < 2; ++round) {
    says(fake.stack({torch.module()}), "0/0", 0, kForward, {}, 2);
    says(torch.running(), "", 0, {});
  }
  EXPECT_EQ(found(Attribution(fake)), (List{"_compile_inner_0_0 x2", "_compile_inner_0_0.2 x2"}));
}

TEST_F(ThreadLocals, AForkedChildHasItsParents) {
  fake.process(Process{.pid = 100});
  fake.process(Process{.pid = 101, .parent_pid = 100, .start_ns = 5});
  ThreadId child = fake.thread(101, 101);
  ContextId context = fake.torch_context(fake.torch_state("0/0", 0, kForward));
  fake.sample(thread, torch.lowering(), context);
  fake.sample(child, torch.lowering(), context);
  fake.sample(thread, torch.running());
  fake.sample(child, torch.lowering(), context);  // its own by now
  EXPECT_EQ(found(Attribution(fake)),
            (List{"_compile_inner_0_0 x1", "pid101-_compile_inner_0_0 x1"}));
}

TEST_F(ThreadLocals, SenselessIdsAreNone) {
  for (TraceId id : {TraceId{-1, 3, -1}, TraceId{-1, -1, 3}, TraceId{-7, -7, -7}}) {
    TorchState state{TorchStatus::kRead, id.autograd, id.frame, id.compile, 0, {}};
    fake.sample(thread, torch.running(), fake.torch_context(state));
  }
  EXPECT_EQ(per_sample(Attribution(fake)), List(3, "- runtime"));
}

TEST_F(ThreadLocals, PoolThreadsKeepTheirRules) {
  StackId pool = fake.stack({torch.torch("_inductor/codecache.py", "_worker_compile_cpp")});
  says(pool, "", 0, {"compile_file"});
  Attribution attribution(fake);
  EXPECT_EQ(per_sample(attribution), (List{"- kernel_compile"}));
  EXPECT_EQ(attribution.detached(), 1u);
}

}  // namespace
}  // namespace dynprof
