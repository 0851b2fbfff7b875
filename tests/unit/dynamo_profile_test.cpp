// The user functions Dynamo traced, from edges: counted as torch's own profiler counts them.
#include "tests/unit/dynamo_fixture.h"

namespace dynprof {
namespace {

TEST_F(Dynamo, TimesWithAndWithoutWhatIsInlined) {
  tracing.compile("0/0", 0, root);
  fake.pass_ms(3);
  tracing.enter(f);
  fake.pass_ms(5);
  tracing.call(g, 7);
  tracing.call(g, 2);
  tracing.leave();
  tracing.call(g, 1);
  fake.pass_ms(4);
  tracing.traced();
  fake.pass_ms(90);  // the backend: nothing is traced
  tracing.attempt_end();
  tracing.close_compile();
  EXPECT_EQ(one(), (List{"f 1/1 5 14 < step 1/1 5 14", "g 3/3 10 10 < f 2/2 9 9 < step 1/1 1 1",
                         "step 1/1 7 22"}));
  EXPECT_EQ(lost, 0u);
}

TEST_F(Dynamo, DepthAndSums) {
  tracing.compile("0/0", 0, root);
  tracing.enter(f);
  tracing.call(g, 2);
  tracing.leave();
  tracing.call(g, 2);
  fake.pass_ms(1);
  tracing.done();
  Attribution attribution(fake);
  DynamoProfiles profiles(attribution);
  const DynamoProfile& profile = *profiles.of(0);
  for (const DynamoFunction& function : profile.functions) {
    EXPECT_EQ(function.depth, function.name == "step" ? 0u : 1u) << function.name;
    EXPECT_EQ(function.file, "job.py");
    EXPECT_GT(function.first_line, 0);
  }
  EXPECT_EQ(profile.sum.calls, 4u);
  EXPECT_EQ(profile.sum.own_ns, 5'000'000u);
  EXPECT_EQ(profile.root_ns, 5'000'000u);
}

TEST_F(Dynamo, RecursionIsPrimitiveOnceAndItsTimeCountsOnce) {
  tracing.compile("0/0", 0, root);
  for (int i = 0; i < 3; ++i) {
    tracing.enter(f);
    fake.pass_ms(2);
  }
  for (int i = 0; i < 3; ++i) tracing.leave();
  tracing.call(f, 1);
  tracing.done();
  // Over its own edge f has 4 + 2 ms, as cProfile has it too.
  EXPECT_EQ(one(), (List{"f 4/2 7 7 < f 2/0 4 6 < step 2/2 3 7", "step 1/1 0 7"}));
}

TEST_F(Dynamo, MutualRecursion) {
  tracing.compile("0/0", 0, root);
  tracing.enter(f);
  fake.pass_ms(1);
  tracing.enter(g);
  fake.pass_ms(2);
  tracing.enter(f);
  fake.pass_ms(4);
  tracing.enter(g);
  fake.pass_ms(8);
  for (int i = 0; i < 4; ++i) tracing.leave();
  tracing.done();
  EXPECT_EQ(one(), (List{"f 2/1 5 15 < g 1/0 4 12 < step 1/1 1 15", "g 2/1 10 14 < f 2/1 10 22",
                         "step 1/1 0 15"}));
}

TEST_F(Dynamo, TheCompilesOwnFunctionMayRecurseToo) {
  tracing.compile("0/0", 0, root);
  tracing.enter(f);
  tracing.call(root, 6);
  tracing.leave();
  tracing.done();
  EXPECT_EQ(one(), (List{"f 1/1 0 6 < step 1/1 0 6", "step 2/1 6 6 < f 1/0 6 6"}));
}

TEST_F(Dynamo, ARaisedCallIsNoneAndItsTimeStaysAround) {
  tracing.compile("0/0", 0, root);
  tracing.enter(f);
  fake.pass_ms(1);
  tracing.enter(g);
  fake.pass_ms(2);
  tracing.call(h, 4);
  fake.pass_ms(8);
  tracing.raise();
  tracing.call(g, 16);
  tracing.leave();
  tracing.done();
  // h was called by g, though that call of g does not count; the whole of it is f's own time.
  EXPECT_EQ(one(), (List{"f 1/1 15 31 < step 1/1 15 31", "g 1/1 16 16 < f 1/1 16 16",
                         "h 1/1 4 4 < g 1/1 4 4", "step 1/1 0 31", "raised 1"}));
}

TEST_F(Dynamo, AFunctionThatOnlyRaisedIsThereAsACaller) {
  tracing.compile("0/0", 0, root);
  tracing.enter(g);
  tracing.enter(f);
  tracing.call(h, 3);
  tracing.raise();
  tracing.raise();
  tracing.done();
  EXPECT_EQ(one(), (List{"f 0/0 0 0", "h 1/1 3 3 < f 1/1 3 3", "step 1/1 3 3", "raised 2"}));
}

// Each step of a generator is traced as a call, and a call of the generator function in it.
TEST_F(Dynamo, Generators) {
  tracing.compile("0/0", 0, root);
  for (int i = 0; i < 3; ++i) {
    tracing.enter(g);
    tracing.call(g, 2);
    tracing.leave();
  }
  tracing.enter(g);
  fake.pass_ms(1);
  tracing.raise();  // StopIteration
  tracing.done();
  EXPECT_EQ(one(), (List{"g 6/3 6 6 < g 3/0 6 6 < step 3/3 0 6", "step 1/1 1 7", "raised 1"}));
}

TEST_F(Dynamo, ClosuresMadeAnewAreOneFunction) {
  CodeId again = fake.code(Code{.filename = fake.string("job.py"),
                                .name = fake.string("f"),
                                .qualname = fake.string("outer.<locals>.f"),
                                .first_line = 20});
  ASSERT_NE(f, again);
  tracing.compile("0/0", 0, root);
  tracing.enter(f);
  tracing.call(again, 1);
  tracing.leave();
  tracing.done();
  EXPECT_EQ(one(), (List{"f 2/1 1 1 < f 1/0 1 1 < step 1/1 0 1", "step 1/1 0 1"}));
}

TEST_F(Dynamo, LambdasOnDifferentLinesAreDifferentFunctions) {
  CodeId one_line = fake.code("job.py", "<lambda>", 50), next = fake.code("job.py", "<lambda>", 51);
  tracing.compile("0/0", 0, root);
  tracing.enter(one_line);
  tracing.call(next, 1);
  tracing.leave();
  tracing.done();
  EXPECT_EQ(one(), (List{"<lambda> 1/1 0 1 < step 1/1 0 1", "<lambda> 1/1 1 1 < <lambda> 1/1 1 1",
                         "step 1/1 0 1"}));
}

// ---- several compiles ------------------------------------------------------------------------

TEST_F(Dynamo, AttemptsHaveProfilesOfTheirOwn) {
  tracing.compile("0/0", 0, root);
  tracing.call(f, 5);
  tracing.enter(g);
  fake.pass_ms(1);
  tracing.raise();
  tracing.traced();
  tracing.attempt_end();
  tracing.attempt_begin(1);
  tracing.call(f, 2);
  tracing.done();
  EXPECT_EQ(all(), (std::vector<List>{{"f 1/1 5 5 < step 1/1 5 5", "step 1/1 1 6", "raised 1"},
                                      {"f 1/1 2 2 < step 1/1 2 2", "step 1/1 0 2"}}));
  EXPECT_EQ(stems, (List{"_compile_inner_0_0", "_compile_inner_0_0_1"}));
}

TEST_F(Dynamo, TheSameIdAgainAfterAReset) {
  for (int i = 0; i < 2; ++i) {
    tracing.compile("0/0", 0, root);
    tracing.call(i == 0 ? f : g, 5);
    tracing.done();
    fake.pass_ms(100);
  }
  EXPECT_EQ(all(), (std::vector<List>{{"f 1/1 5 5 < step 1/1 5 5", "step 1/1 0 5"},
                                      {"g 1/1 5 5 < step 1/1 5 5", "step 1/1 0 5"}}));
  EXPECT_EQ(stems, (List{"_compile_inner_0_0", "_compile_inner_0_0.2"}));
}

TEST_F(Dynamo, TwoThreadsInterleaved) {
  FakeTracing other(fake, fake.thread(100, 101));
  CodeId second = fake.code("job.py", "second", 60);
  tracing.compile("0/0", 0, root);
  tracing.enter(f);
  fake.pass_ms(1);
  other.compile("1/0", 0, second);
  other.enter(f);
  fake.pass_ms(2);
  tracing.enter(g);
  fake.pass_ms(4);
  other.call(f, 8);
  tracing.leave();
  tracing.leave();
  tracing.done();
  fake.pass_ms(16);
  other.leave();
  other.done();
  EXPECT_EQ(all(), (std::vector<List>{
                       {"f 1/1 3 15 < step 1/1 3 15", "g 1/1 12 12 < f 1/1 12 12", "step 1/1 0 15"},
                       {"f 2/1 30 30 < f 1/0 8 8 < second 1/1 22 30", "second 1/1 0 30"}}));
}

// A compile inside a traced call, as when tracing runs something that is compiled itself.
TEST_F(Dynamo, ACompileInsideAnotherTakesNothingFromIt) {
  CodeId inner = fake.code("job.py", "inner", 60);
  tracing.compile("0/0", 0, root);
  tracing.enter(f);
  fake.pass_ms(1);
  tracing.compile("1/0", 0, inner);
  fake.pass_ms(2);
  tracing.enter(f);
  fake.pass_ms(4);
  tracing.leave();
  tracing.done();
  tracing.call(g, 8);
  tracing.leave();
  tracing.done();
  EXPECT_EQ(all(), (std::vector<List>{
                       {"f 1/1 7 15 < step 1/1 7 15", "g 1/1 8 8 < f 1/1 8 8", "step 1/1 0 15"},
                       {"f 1/1 4 4 < inner 1/1 4 4", "inner 1/1 2 6"}}));
}

// torch's ids of the inner compile are still there until the next phase: the phases know better.
TEST_F(Dynamo, AnEdgeWithTheIdOfACompileThatIsOver) {
  tracing.compile("0/0", 0, root);
  tracing.compile("1/0", 0, h);
  tracing.done();
  SpanEdge begin = tracing.make(EdgeKind::kInlineBegin, "", 1, f);
  begin.context = fake.torch_context(fake.torch_state("1/0", 0));
  fake.edge(begin);
  fake.pass_ms(3);
  SpanEdge end = tracing.make(EdgeKind::kInlineEnd, "", 1);
  end.context = begin.context;
  fake.edge(end);
  tracing.done();
  EXPECT_EQ(all(), (std::vector<List>{{"f 1/1 3 3 < step 1/1 3 3", "step 1/1 0 3"}, {"nothing"}}));
}

}  // namespace
}  // namespace dynprof
