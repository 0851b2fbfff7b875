#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

struct Compiles : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);

  // "stem xN" per compile: what was found, in order.
  static std::vector<std::string> found(const Attribution& attribution) {
    std::vector<std::string> list;
    for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
      list.push_back(attribution.file_stem(i) + " x" +
                     std::to_string(attribution.compiles()[i].samples));
    }
    return list;
  }
  // One word per sample: the compile's label, "runtime" or "?".
  static std::vector<std::string> per_sample(const Attribution& attribution) {
    std::vector<std::string> list;
    attribution.for_each([&](const AttributedSample& sample) {
      list.push_back(sample.compile != kNoCompile           ? attribution.label(sample.compile)
                     : sample.phase == Phase::kUnattributed ? "?"
                                                            : phase_text(sample.phase));
    });
    return list;
  }
  using List = std::vector<std::string>;
};

TEST_F(Compiles, IdsReadAsTorchPrintsThem) {
  EXPECT_EQ((TraceId{-1, 0, 1}).text(), "0/1");
  EXPECT_EQ((TraceId{1, 0, 0}).text(), "!1/0/0");
  EXPECT_EQ((TraceId{7, -1, -1}).text(), "!7");
}

TEST_F(Compiles, ForwardAndBackwardOfOneId) {
  CodeId user = fake.code("/home/me/model.py", "Block.forward", 7);
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000, user), 0, 3);
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.lowering_backward(), torch.backward_of(0, 0, 0, 0x2000), 0, 2);
  fake.sample(thread, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x3", "compile_backward_0_0 x2"}));
  const Compile& forward = attribution.compiles()[0];
  const Compile& backward = attribution.compiles()[1];
  EXPECT_EQ(forward.first_ns, fake.meta().start_ns + 10'000'000);
  EXPECT_EQ(forward.last_ns, fake.meta().start_ns + 30'000'000);
  EXPECT_EQ(forward.user_code, user);
  EXPECT_EQ(backward.user_code, user) << "a backward has its forward's function";
  EXPECT_EQ(backward.kind, CompileKind::kBackward);
  EXPECT_FALSE(forward.began_before || forward.open_at_end);
  EXPECT_FALSE(backward.began_before || backward.open_at_end);
  EXPECT_EQ(attribution.attributed(), 5u);
  EXPECT_EQ(attribution.runtime(), 3u);
}

TEST_F(Compiles, AForkedChildHasItsParentsFramesButNoCompile) {
  fake.process(Process{.pid = 100});
  fake.process(Process{.pid = 101, .parent_pid = 100, .start_ns = 5});
  ThreadId child = fake.thread(101, 101);
  fake.sample(thread, torch.lowering(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(child, torch.lowering(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(thread, torch.lowering(), torch.forward(0, 0, 0, 0x1000));
  // A compile of its own, in another call of the marker, is one.
  fake.sample(child, torch.lowering(), torch.forward(0, 0, 0, 0x2000));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x2", "pid101-_compile_inner_0_0 x1"}));
  EXPECT_EQ(per_sample(attribution), (List{"0/0", "runtime", "0/0", "pid 101 0/0"}));
}

TEST_F(Compiles, AForkedChildIsKnownByItsFramesBeforeItsMarkersAreRead) {
  fake.process(Process{.pid = 100});
  fake.process(Process{.pid = 101, .parent_pid = 100, .start_ns = 5});
  ThreadId child = fake.thread(101, 101);
  fake.sample(thread, torch.running());
  fake.sample(child, torch.lowering());  // no compile is open in its parent
  fake.sample(thread, torch.lowering(), torch.forward(0, 0, 0, 0x1000));
  ThreadId later = fake.thread(102, 102);
  fake.process(Process{.pid = 102, .parent_pid = 100, .start_ns = 6});
  fake.sample(later, torch.lowering());
  fake.sample(later, torch.running());
  fake.sample(later, torch.lowering());  // of its own
  Attribution attribution(fake);
  EXPECT_EQ(per_sample(attribution), (List{"runtime", "?", "0/0", "runtime", "runtime", "?"}));
}

TEST_F(Compiles, AttemptsAreCompilesOfTheirOwn) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.before_attempt(), torch.forward_without_attempt(1, 0, 0x1000));
  fake.sample(thread, torch.tracing(), torch.forward(1, 0, 0, 0x1000), 0, 2);
  fake.sample(thread, torch.tracing(), torch.forward(1, 0, 1, 0x1000), 0, 4);
  // After the last attempt, still in _compile.
  fake.sample(thread, torch.before_attempt(), torch.forward_without_attempt(1, 0, 0x1000));
  fake.sample(thread, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_1_0 x3", "_compile_inner_1_0_1 x5"}));
  EXPECT_EQ(attribution.label(1), "1/0_1");
}

TEST_F(Compiles, AttemptsNeverSampledStillWere) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 2, 0x1000), 0, 2);
  fake.sample(thread, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 x0", "_compile_inner_0_0_1 x0", "_compile_inner_0_0_2 x2"}));
  EXPECT_EQ(attribution.compiles()[0].first_ns, 0u);
  EXPECT_EQ(attribution.compiles()[0].last_ns, 0u);
}

TEST_F(Compiles, AnAbsurdAttemptMakesNoRowsForThoseBeforeIt) {
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0x7fffffff, 0x1000));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0_2147483647 x1"}));
}

TEST_F(Compiles, TheSameIdAgainIsARepeat) {
  for (int round = 0; round < 3; ++round) {
    fake.sample(thread, torch.running());
    fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  }
  // Two calls without a sample between them: told apart by the marker's frame.
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x9000));
  fake.sample(thread, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x1", "_compile_inner_0_0.2 x1",
                                      "_compile_inner_0_0.3 x1", "_compile_inner_0_0.4 x1"}));
}

TEST_F(Compiles, ABackToBackCompileAtTheSameAddressIsAnother) {
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(thread, torch.tracing(), torch.forward(1, 0, 0, 0x1000));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x1", "_compile_inner_1_0 x1"}));
  EXPECT_FALSE(attribution.compiles()[0].open_at_end);
  EXPECT_TRUE(attribution.compiles()[1].open_at_end);
}

TEST_F(Compiles, TheInnermostWinsAndTheOuterStaysOpen) {
  StackId nested = fake.stack({torch.compile(), torch.compile_frame(), torch.compile(),
                               torch.compile_frame(), torch.inductor()});
  auto outer = FakeRecording::compile_marker(0, 0, 0x1000);
  auto outer_attempt = FakeRecording::attempt_marker(1, 0x1100);
  auto inner = FakeRecording::compile_marker(0, 1, 0x2000);
  auto inner_attempt = FakeRecording::attempt_marker(0, 0x2100);
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), fake.context({outer, outer_attempt}));
  fake.sample(thread, nested, fake.context({outer, outer_attempt, inner, inner_attempt}), 0, 5);
  fake.sample(thread, torch.tracing(), fake.context({outer, outer_attempt}));
  fake.sample(thread, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 x0", "_compile_inner_0_0_1 x2", "_compile_inner_0_1 x5"}));
  const Compile& whole = attribution.compiles()[1];
  EXPECT_EQ(whole.last_ns - whole.first_ns, 6 * fake.meta().period_ns);
}

TEST_F(Compiles, AnOuterCompileFirstSeenAroundAnInnerOneHasARow) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(),
              fake.context({FakeRecording::compile_marker(0, 0, 0x1000),
                            FakeRecording::compile_marker(0, 1, 0x2000)}));
  fake.sample(thread, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x0", "_compile_inner_0_1 x1"}));
}

TEST_F(Compiles, CompiledAutograd) {
  fake.sample(thread, torch.tracing(),
              fake.context({FakeRecording::compile_marker(-1, -1, 0x1000, 0, 3)}));
  fake.sample(thread, torch.tracing(),
              fake.context({FakeRecording::compile_marker(4, 0, 0x2000, 0, 3),
                            FakeRecording::attempt_marker(1, 0x2100)}));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"compiled_autograd_!3 x1", "_compile_inner_!3_4_0 x0",
                                      "_compile_inner_!3_4_0_1 x1"}));
  EXPECT_EQ(attribution.compiles()[0].kind, CompileKind::kCompiledAutograd);
  EXPECT_EQ(attribution.compiles()[2].kind, CompileKind::kForward);
}

TEST_F(Compiles, OtherProcessesAndThreadsAreApart) {
  ThreadId child = fake.thread(177, 177);
  ThreadId second = fake.thread(100, 101);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(child, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(second, torch.lowering_backward(), torch.backward_of(0, 0, 0, 0x1000));
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x2", "pid177-_compile_inner_0_0 x1",
                                      "compile_backward_0_0 x1"}));
  EXPECT_EQ(attribution.label(1), "pid 177 0/0");
}

TEST_F(Compiles, WithoutOneTargetTheFirstProcessHasNoPrefix) {
  fake.edit_meta().target_pid = 0;
  fake.process(Process{.pid = 500});
  ThreadId first = fake.thread(500, 500), other = fake.thread(501, 501);
  fake.sample(other, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(first, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  EXPECT_EQ(found(Attribution(fake)),
            (List{"pid501-_compile_inner_0_0 x1", "_compile_inner_0_0 x1"}));
}

TEST_F(Compiles, BeganBeforeUsAndOpenAtTheEnd) {
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 1, 0x1000));
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 1, 0, 0x1000));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0 x0", "_compile_inner_0_0_1 x1", "_compile_inner_0_1 x1"}));
  EXPECT_TRUE(attribution.compiles()[0].began_before);
  EXPECT_TRUE(attribution.compiles()[1].began_before);
  EXPECT_FALSE(attribution.compiles()[1].open_at_end);
  EXPECT_FALSE(attribution.compiles()[2].began_before);
  EXPECT_TRUE(attribution.compiles()[2].open_at_end);
}

TEST_F(Compiles, AProcessThatBeganWithUsHasNoCompileFromBefore) {
  fake.process(Process{.pid = 100, .start_ns = 5});
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  EXPECT_FALSE(Attribution(fake).compiles()[0].began_before);
}

TEST_F(Compiles, ATargetThatCompiledNothingAtAttachHasNoCompileFromBefore) {
  fake.process(Process{.pid = 100, .no_compile_at_start = true});
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  EXPECT_FALSE(Attribution(fake).compiles()[0].began_before);
}

TEST_F(Compiles, ABlindSampleDoesNotEndAnEpisode) {
  for (std::uint8_t flags : {kSampleTruncated, kSampleFrameFault, kSampleMarkersCut}) {
    FakeRecording local;
    FakeTorch in(local);
    ThreadId t = local.thread(100, 100);
    local.sample(t, in.tracing(), in.forward(0, 0, 0, 0x1000));
    local.sample(t, local.stack({in.inductor()}), 0, flags);
    local.sample(t, local.stack({in.step()}), 0, flags);
    local.sample(t, in.tracing(), in.forward(0, 0, 0, 0x1000));
    local.sample(t, in.running());
    local.sample(t, local.stack({in.step()}), 0, flags);
    Attribution attribution(local);
    EXPECT_EQ(per_sample(attribution), (List{"0/0", "?", "?", "0/0", "runtime", "runtime"}));
    EXPECT_EQ(attribution.unattributed(), 2u);
  }
}

TEST_F(Compiles, AnUnreadableMarkerIsUnattributedAndDoesNotEndTheEpisode) {
  Marker unreadable = FakeRecording::compile_marker(0, 0, 0x1000);
  unreadable.readable = false;
  Marker no_id = FakeRecording::compile_marker(-1, -1, 0x1000);
  Marker half_an_id = FakeRecording::compile_marker(3, -1, 0x1000);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  for (const Marker& marker : {unreadable, no_id, half_an_id}) {
    fake.sample(thread, torch.tracing(), fake.context({marker}));
  }
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  Attribution attribution(fake);
  EXPECT_EQ(per_sample(attribution), (List{"0/0", "?", "?", "?", "0/0"}));
  EXPECT_EQ(attribution.compiles().size(), 1u);
}

TEST_F(Compiles, AMarkerFrameWithoutItsMarkerIsNeverRuntime) {
  fake.sample(thread, torch.tracing());
  fake.sample(thread, torch.tracing());
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(thread, torch.tracing());
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(thread, torch.lowering_backward());
  // torch.export: compile_frame without _compile; its id is not in a frame.
  fake.sample(thread, fake.stack({torch.module(), torch.compile_frame(), torch.aot()}),
              fake.context({FakeRecording::attempt_marker(0, 0x5000)}));
  fake.sample(thread, torch.running());
  Attribution attribution(fake);
  EXPECT_EQ(per_sample(attribution), (List{"?", "?", "0/0", "?", "0/0", "?", "?", "runtime"}));
  EXPECT_EQ(attribution.compiles().size(), 1u);
}

TEST_F(Compiles, SamplesWithoutPythonAreDecidedByTheNextOneWith) {
  StackId native = fake.stack({fake.native("poll", "/lib/libc.so.6")});
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(thread, native, 0, kSampleNoPython);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(thread, native, 0, kSampleNoPython);
  fake.sample(thread, torch.running());
  fake.sample(thread, native, 0, kSampleNoPython);
  fake.sample(thread, torch.tracing(), torch.forward(0, 1, 0, 0x1000));
  fake.sample(thread, native, 0, kSampleNoPython);
  Attribution attribution(fake);
  EXPECT_EQ(per_sample(attribution),
            (List{"0/0", "?", "0/0", "runtime", "runtime", "runtime", "0/1", "runtime"}));
  EXPECT_EQ(attribution.compiles().size(), 2u);
  EXPECT_FALSE(attribution.compiles()[1].open_at_end);
}

TEST_F(Compiles, OldTorchRunsTheBackwardInTheFrameThatCompilesIt) {
  StackId compiling = fake.stack({torch.module(), torch.old_backward(), torch.inductor()});
  StackId running = fake.stack({torch.module(), torch.old_backward(), torch.run_compiled()});
  Marker unset = FakeRecording::backward_marker(-1, -1, -1, 0x1000);
  unset.readable = false;
  fake.sample(thread, compiling, torch.backward_of(0, 0, 0, 0x1000));
  fake.sample(thread, running, torch.backward_of(0, 0, 0, 0x1000));  // the local keeps its value
  fake.sample(thread, running, fake.context({unset}));
  fake.sample(thread, fake.stack({torch.module(), torch.old_backward()}), fake.context({unset}));
  fake.sample(thread, compiling, fake.context({unset}));
  EXPECT_EQ(per_sample(Attribution(fake)),
            (List{"backward 0/0", "runtime", "runtime", "runtime", "?"}));
}

TEST_F(Compiles, AThreadThatChangesItsNameStaysOneThread) {
  ThreadId renamed = fake.thread(100, 100, "renamed");
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(renamed, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 x2"}));
}

TEST_F(Compiles, AskingTwiceGivesTheSameAnswers) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 2, 0x1000), 0, 3);
  Attribution attribution(fake);
  EXPECT_EQ(per_sample(attribution), per_sample(attribution));
  EXPECT_EQ(per_sample(attribution), (List{"runtime", "0/0_2", "0/0_2", "0/0_2"}));
}

TEST_F(Compiles, AnEmptyRecording) {
  Attribution attribution(fake);
  EXPECT_TRUE(attribution.compiles().empty());
  EXPECT_EQ(attribution.runtime() + attribution.attributed() + attribution.unattributed(), 0u);
}

}  // namespace
}  // namespace dynprof
