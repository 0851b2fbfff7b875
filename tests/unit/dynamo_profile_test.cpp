// The user functions Dynamo traced, from edges: counted as torch's own profiler counts them.
#include "symbolizer/profile/dynamo_profile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/fake_torch.h"
#include "tests/unit/fake_tracing.h"

namespace dynprof {
namespace {

using List = std::vector<std::string>;

struct Dynamo : testing::Test {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100);
  FakeTracing tracing{fake, thread};
  CodeId root = fake.code("job.py", "step", 10), f = fake.code("job.py", "f", 20),
         g = fake.code("job.py", "g", 30), h = fake.code("job.py", "h", 40);

  // Per function "name calls/primitive own cumulative", in ms, and its callers the same way after it.
  static std::string text(const DynamoCalls& calls) {
    return fmt::format("{}/{} {} {}", calls.calls, calls.primitive, calls.own_ns / 1'000'000,
                       calls.cumulative_ns / 1'000'000);
  }
  static List text(const DynamoProfile* profile) {
    if (profile == nullptr) return {"nothing"};
    List list;
    for (const DynamoFunction& function : profile->functions) {
      std::string line = fmt::format("{} {}", function.name, text(function.calls));
      for (const DynamoCaller& caller : function.callers) {
        line +=
            fmt::format(" < {} {}", profile->functions[caller.function].name, text(caller.calls));
      }
      list.push_back(line);
    }
    std::sort(list.begin(), list.end());
    if (profile->raised > 0) list.push_back(fmt::format("raised {}", profile->raised));
    if (profile->unfinished > 0) list.push_back(fmt::format("unfinished {}", profile->unfinished));
    return list;
  }
  // Of each compile, in their order.
  std::vector<List> all() {
    Attribution attribution(fake);
    DynamoProfiles profiles(attribution);
    lost = profiles.lost();
    std::vector<List> lists;
    for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
      lists.push_back(text(profiles.of(i)));
      stems.push_back(attribution.file_stem(i));
    }
    return lists;
  }
  List one() {
    std::vector<List> lists = all();
    EXPECT_EQ(lists.size(), 1u);
    return lists.empty() ? List{} : lists[0];
  }
  std::uint64_t lost = 0;
  List stems;
};

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

// ---- what is missing -------------------------------------------------------------------------

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
