// Profiles of what Dynamo traced where edges, compiles or functions are missing.
#include "tests/unit/dynamo_fixture.h"

namespace dynprof {
namespace {

TEST_F(Dynamo, ACallWithoutEndIsNone) {
  tracing.compile("0/0", 0, root);
  tracing.enter(f);
  fake.pass_ms(1);
  tracing.enter(g);
  tracing.call(h, 2);
  tracing.lose_leave();
  fake.pass_ms(4);
  tracing.leave();  // f: g must have ended before
  tracing.enter(f);
  tracing.call(g, 8);
  tracing.lose_leave();
  tracing.call(g, 16);  // at the depth of f: that has ended
  tracing.done();
  EXPECT_EQ(one(), (List{"f 1/1 7 7 < step 1/1 7 7", "g 2/2 24 24 < f 1/1 8 8 < step 1/1 16 16",
                         "h 1/1 2 2 < g 1/1 2 2", "step 1/1 8 31", "unfinished 2"}));
}

TEST_F(Dynamo, AnEndWithoutBeginIsNone) {
  tracing.compile("0/0", 0, root);
  tracing.lose_enter();
  fake.pass_ms(1);
  tracing.leave();
  tracing.call(f, 2);
  tracing.done();
  EXPECT_EQ(one(), (List{"f 1/1 2 2 < step 1/1 2 2", "step 1/1 1 3"}));
  EXPECT_EQ(lost, 1u);
}

TEST_F(Dynamo, ACallInsideOneWhoseBeginIsLostHasNoKnownCaller) {
  tracing.compile("0/0", 0, root);
  tracing.lose_enter();
  fake.pass_ms(1);
  tracing.call(f, 2);
  tracing.leave();
  tracing.done();
  EXPECT_EQ(one(), (List{"f 1/1 2 2", "step 1/1 3 3"}));
}

TEST_F(Dynamo, AnEndOfAnotherFunctionEndsNothing) {
  tracing.compile("0/0", 0, root);
  tracing.enter(f);
  fake.pass_ms(1);
  fake.edge(tracing.make(EdgeKind::kInlineEnd, "", 1, g));
  tracing.lose_leave();
  tracing.call(h, 2);
  tracing.done();
  EXPECT_EQ(one(), (List{"h 1/1 2 2 < step 1/1 2 2", "step 1/1 1 3", "unfinished 1"}));
  EXPECT_EQ(lost, 1u);
}

// With torch's own profiler on, its function takes another way out: all ends look raised.
TEST_F(Dynamo, OnlyRaisedCallsSayNothing) {
  tracing.compile("0/0", 0, root);
  tracing.enter(f);
  fake.pass_ms(1);
  tracing.raise();
  tracing.done();
  EXPECT_EQ(one(), List{"nothing"});
}

TEST_F(Dynamo, TracingThatWasOpenWhenWatchingBegan) {
  tracing.open_compile("0/0", root);
  fake.edit_tables().edges.clear();
  for (const char* name : {"compile_attempt_0", "bytecode_tracing"}) tracing.lose_begin(name);
  fake.pass_ms(10);
  tracing.watch_begin();
  tracing.enter(f);
  tracing.call(g, 2);
  tracing.leave();
  tracing.done();
  // Whoever called f is not known: it may have been inlined into a call whose begin was lost.
  EXPECT_EQ(one(), (List{"f 1/1 0 2", "g 1/1 2 2 < f 1/1 2 2"}));
}

TEST_F(Dynamo, TracingThatWasOpenWhenWatchingEnded) {
  tracing.compile("0/0", 0, root);
  tracing.call(f, 2);
  tracing.enter(g);
  fake.pass_ms(3);
  tracing.call(h, 4);
  tracing.watch_end();
  EXPECT_EQ(one(), (List{"f 1/1 2 2 < step 1/1 2 2", "g 0/0 0 0", "h 1/1 4 4 < g 1/1 4 4",
                         "step 0/0 0 0", "unfinished 1"}));
}

TEST_F(Dynamo, WithoutInlineEdgesNothingIsKnown) {
  tracing.compile("0/0", 0, root);
  fake.pass_ms(5);
  tracing.done();
  EXPECT_EQ(one(), List{"nothing"});
  Attribution attribution(fake);
  EXPECT_FALSE(DynamoProfiles(attribution).watched(0));
}

// It may have inlined nothing, or was not watched: the target may have torch's own profiler on.
TEST_F(Dynamo, ACompileWithoutInlinedCalls) {
  tracing.compile("0/0", 0, root);
  fake.pass_ms(5);
  tracing.done();
  tracing.compile("0/1", 0, root);
  tracing.call(f, 1);
  tracing.done();
  FakeTracing other(fake, fake.thread(100, 101));
  other.compile("1/0", 0, root);
  other.done();
  EXPECT_EQ(all(), (std::vector<List>{
                       {"nothing"}, {"f 1/1 1 1 < step 1/1 1 1", "step 1/1 0 1"}, {"nothing"}}));
  Attribution attribution(fake);
  DynamoProfiles profiles(attribution);
  EXPECT_TRUE(profiles.watched(0));
  EXPECT_FALSE(profiles.watched(2));
}

TEST_F(Dynamo, CompilesKnownFromSamplesOnly) {
  FakeTorch torch{fake};
  auto compile = [&](CodeId code) {
    fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, fake.now(), root), 0, 2);
    SpanEdge begin = tracing.make(EdgeKind::kInlineBegin, "", 1, code);
    begin.context = fake.torch_context(fake.torch_state("0/0", 0));
    begin.time_ns -= 15'000'000;
    fake.edge(begin);
    begin.kind = EdgeKind::kInlineEnd;
    begin.code = 0;
    begin.time_ns += 3'000'000;
    fake.edge(begin);
    fake.skip(20);
    fake.sample(thread, torch.running());
  };
  compile(f);
  compile(g);
  EXPECT_EQ(all(), (std::vector<List>{{"f 1/1 3 3"}, {"g 1/1 3 3"}}));
  // An id that no compile of that moment has.
  tracing.emit(EdgeKind::kInlineBegin, "", 1);
  EXPECT_EQ(all().size(), 2u);
  EXPECT_EQ(lost, 1u);
}

TEST_F(Dynamo, FunctionsThatCouldNotBeRead) {
  CodeId stale = fake.code(Code{.unreadable = Unreadable::kStale});
  tracing.compile("0/0", 0, stale);
  tracing.call(stale, 1);
  tracing.call(0, 2);
  tracing.done();
  std::string fault(unreadable_text(Unreadable::kFault));
  EXPECT_EQ(one(), (List{"<stale code> 2/1 1 3 < <stale code> 1/0 1 1",
                         fault + " 1/1 2 2 < <stale code> 1/1 2 2"}));
}

TEST_F(Dynamo, TheCompilesOwnFunctionNotKnown) {
  tracing.compile("0/0");
  tracing.call(f, 1);
  tracing.done();
  EXPECT_EQ(one(),
            (List{"<function not known> 1/1 0 1", "f 1/1 1 1 < <function not known> 1/1 1 1"}));
}

// Only one attempt was sampled, or is in torch's history.
TEST_F(Dynamo, TheFunctionOfAnotherAttempt) {
  FakeTorch torch{fake};
  tracing.compile("0/0");
  tracing.call(f, 1);
  tracing.traced();
  tracing.attempt_end();
  tracing.attempt_begin(1);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 1, 0x1000, root));
  tracing.call(f, 2);
  tracing.done();
  EXPECT_EQ(all(), (std::vector<List>{{"f 1/1 1 1 < step 1/1 1 1", "step 1/1 0 1"},
                                      {"f 1/1 2 2 < step 1/1 2 2", "step 1/1 10 12"}}));
}

// Depths of a hostile recording: bounded, and what follows is still right.
TEST_F(Dynamo, AbsurdDepths) {
  tracing.compile("0/0", 0, root);
  for (std::uint32_t depth : {4'000'000'000u, 1001u, 999u, 1000u, 0u, 7u}) {
    fake.edge(tracing.make(EdgeKind::kInlineBegin, "", depth, g));
    fake.edge(tracing.make(EdgeKind::kInlineEnd, "", depth + 1));
  }
  for (int i = 0; i < 5000; ++i) fake.edge(tracing.make(EdgeKind::kInlineBegin, "", 0, g));
  tracing.call(f, 1);
  tracing.done();
  List list = one();
  EXPECT_EQ(list.front(), "f 1/1 1 1 < step 1/1 1 1");
  EXPECT_GT(lost, 4000u);
}

}  // namespace
}  // namespace dynprof
