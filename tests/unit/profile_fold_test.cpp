#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "symbolizer/profile/analysis.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

using Numbers = std::pair<std::uint64_t, std::uint64_t>;  // leaf, on stack

struct Named {
  std::map<std::string, Numbers> functions;
  std::map<std::pair<std::string, std::string>, Numbers> edges;  // (caller, function)
};

Named named(const Profile& profile, const Functions& functions) {
  Named result;
  for (const ProfileEntry& entry : profile.entries) {
    std::string name(functions[entry.function].name);
    result.functions[name] = {entry.leaf, entry.on_stack};
    for (const CallerEntry& caller : entry.callers) {
      result.edges[{std::string(functions[caller.caller].name), name}] = {caller.leaf,
                                                                          caller.on_stack};
    }
  }
  return result;
}

struct Fold : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);
  FrameId function(const std::string& name, std::int32_t line = 0) {
    return fake.python("f.py", name, 1, line);
  }
  Named session() {
    Attribution attribution(fake);
    const Analysis analysis(attribution);
    return named(analysis.session(), analysis.functions());
  }
};

TEST_F(Fold, LeavesStacksAndCallers) {
  FrameId a = function("a"), b = function("b"), c = function("c");
  fake.sample(thread, fake.stack({a, b, c}), 0, 0, 3);
  fake.sample(thread, fake.stack({a, b}), 0, 0, 2);
  fake.sample(thread, fake.stack({a, c}));
  Named is = session();
  EXPECT_EQ(is.functions["a"], Numbers(0, 6));
  EXPECT_EQ(is.functions["b"], Numbers(2, 5));
  EXPECT_EQ(is.functions["c"], Numbers(4, 4));
  EXPECT_EQ((is.edges[{"a", "b"}]), Numbers(2, 5));
  EXPECT_EQ((is.edges[{"b", "c"}]), Numbers(3, 3));
  EXPECT_EQ((is.edges[{"a", "c"}]), Numbers(1, 1));
  EXPECT_EQ(is.edges.size(), 3u);
}

TEST_F(Fold, LinesOfOneFunctionAreOneFunction) {
  fake.sample(thread, fake.stack({function("a", 5), function("b", 7)}));
  fake.sample(thread, fake.stack({function("a", 6), function("b", 8)}));
  Named is = session();
  EXPECT_EQ(is.functions.size(), 2u);
  EXPECT_EQ(is.functions["b"], Numbers(2, 2));
}

TEST_F(Fold, RecursionCountsOncePerStack) {
  FrameId a = function("a"), b = function("b");
  fake.sample(thread, fake.stack({a, b, a, b, a}), 0, 0, 4);
  Named is = session();
  EXPECT_EQ(is.functions["a"], Numbers(4, 4));
  EXPECT_EQ(is.functions["b"], Numbers(0, 4));
  EXPECT_EQ((is.edges[{"a", "b"}]), Numbers(0, 4));
  EXPECT_EQ((is.edges[{"b", "a"}]), Numbers(4, 4));
}

TEST_F(Fold, SamplesWithoutFramesAreNotLost) {
  fake.sample(thread, 0, 0, kSampleNoPython, 3);
  EXPECT_EQ(session().functions["<no stack>"], Numbers(3, 3));
}

TEST_F(Fold, NativeKernelAndUnreadableFrames) {
  Code stale{.unreadable = Unreadable::kStale};
  fake.sample(thread, fake.stack({fake.python(fake.code(stale)),
                                  fake.native("malloc", "/a/libc.so"), fake.kernel("read")}));
  fake.sample(thread, fake.stack({fake.native("", "/b/libx.so", 7)}));
  fake.sample(thread, fake.stack({fake.native("", "/b/libx.so", 9)}));
  Named is = session();
  EXPECT_EQ(is.functions["<stale code>"], Numbers(0, 1));
  EXPECT_EQ(is.functions["<malloc in libc.so>"], Numbers(0, 1));
  EXPECT_EQ(is.functions["<read in [kernel]>"], Numbers(1, 1));
  EXPECT_EQ(is.functions["<no symbol in libx.so>"], Numbers(2, 2));
}

TEST_F(Fold, ACompileBeginsAtTorchsFunction) {
  FrameId wrapper = torch.torch("_utils_internal.py", "wrapper_function", 85);
  StackId inner =
      fake.stack({torch.module(), wrapper, torch.compile(), wrapper, torch.compile_frame()});
  fake.sample(thread, inner, torch.forward(0, 0, 0, 0x1000), 0, 5);
  fake.sample(thread, torch.running());
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  Profile profile = analysis.of(0);
  Named is = named(profile, analysis.functions());
  EXPECT_EQ(profile.samples, 5u);
  EXPECT_EQ(is.functions.count("<module>"), 0u);
  EXPECT_EQ(is.functions["_compile"], Numbers(0, 5));
  EXPECT_EQ(is.functions["wrapper_function"], Numbers(0, 5));
  EXPECT_EQ((is.edges[{"_compile", "wrapper_function"}]), Numbers(0, 5));
  EXPECT_EQ((is.edges.count({"wrapper_function", "_compile"})), 0u);
  EXPECT_EQ(named(analysis.session(), analysis.functions()).functions["<module>"], Numbers(0, 6));
}

TEST_F(Fold, EveryCompileIsFoldedAlone) {
  for (int i = 0; i < 4; ++i) {
    fake.sample(thread, torch.tracing(),
                torch.forward(i, 0, 0, 0x1000 + static_cast<std::uint64_t>(i)), 0,
                static_cast<std::uint64_t>(i) + 1);
  }
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  for (CompileIndex i : {3u, 0u, 2u, 1u, 0u}) EXPECT_EQ(analysis.of(i).samples, i + 1);
}

// Against the plainest way of counting, on random trees with much recursion.
TEST_F(Fold, AgreesWithCountingStackByStack) {
  std::mt19937 random(7);
  Named expected;
  std::uint64_t samples = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<FrameId> frames;
    std::vector<std::string> names;
    auto depth = 1 + random() % 12;
    for (unsigned d = 0; d < depth; ++d) {
      names.push_back(std::string(1, static_cast<char>('a' + random() % 4)));
      frames.push_back(function(names.back(), 1 + static_cast<int>(random() % 3)));
    }
    std::uint64_t count = 1 + random() % 3;
    fake.sample(thread, fake.stack(frames), 0, 0, count);
    samples += count;
    std::set<std::string> on_stack(names.begin(), names.end());
    for (const std::string& name : on_stack) expected.functions[name].second += count;
    expected.functions[names.back()].first += count;
    std::set<std::pair<std::string, std::string>> edges;
    for (std::size_t d = 1; d < names.size(); ++d) edges.emplace(names[d - 1], names[d]);
    for (const auto& edge : edges) expected.edges[edge].second += count;
    if (names.size() > 1) expected.edges[{names[depth - 2], names[depth - 1]}].first += count;
  }
  Named is = session();
  EXPECT_EQ(is.functions, expected.functions);
  EXPECT_EQ(is.edges, expected.edges);
  std::uint64_t leaves = 0;
  for (const auto& [name, numbers] : is.functions) leaves += numbers.first;
  EXPECT_EQ(leaves, samples);
}

TEST_F(Fold, AStackOfManyThousandFramesIsFoldedWithoutRecursion) {
  std::vector<FrameId> frames;
  for (int i = 0; i < 60'000; ++i) frames.push_back(function("f", 1 + i % 400));
  fake.sample(thread, fake.stack(frames));
  EXPECT_EQ(session().functions["f"], Numbers(1, 1));
}

TEST_F(Fold, CountsAreOrderedByCompile) {
  ThreadId second = fake.thread(100, 101, "other");
  fake.sample(thread, torch.running(), 0, 0, 2);
  fake.sample(second, torch.running(), 0, 0, 2);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000), 0, 4);
  fake.sample(thread, torch.lowering(), torch.forward(0, 0, 0, 0x1000), 0, 4);
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  const StackCounts& counts = analysis.counts();
  EXPECT_EQ(counts.all().size(), 4u);
  EXPECT_EQ(counts.of(0).size(), 2u);
  EXPECT_EQ(counts.of(kNoCompile).size(), 2u);
  EXPECT_EQ(counts.of(0)[0].samples, 4u);
}

}  // namespace
}  // namespace dynprof
