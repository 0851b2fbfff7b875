// Which functions and calls a call graph shows, and what names of the target become in DOT.
#include "symbolizer/export/call_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/profile/analysis.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

CallGraph graph_of(const std::vector<CallGraphNode>& nodes, const std::vector<CallGraphEdge>& edges,
                   std::uint64_t ns = 1000) {
  CallGraph graph;
  graph.nodes = nodes;
  graph.edges = edges;
  graph.ns = ns;
  return graph;
}

std::vector<std::string> names(const CallGraph& graph) {
  std::vector<std::string> all;
  for (const CallGraphNode& node : graph.nodes) all.emplace_back(node.name);
  return all;
}

std::vector<std::string> calls(const CallGraph& graph) {
  std::vector<std::string> all;
  for (const CallGraphEdge& edge : graph.edges)
    all.push_back(std::string(graph.nodes[edge.caller].name) + ">" +
                  std::string(graph.nodes[edge.callee].name) + " " + std::to_string(edge.ns));
  return all;
}

TEST(CallGraph, FunctionsAndCallsOfLittleTimeAreLeftOut) {
  const CallGraph graph = prune(graph_of({{"main", "", 0, 1000, 500},
                                          {"much", "", 0, 490, 490},
                                          {"limit", "", 0, 5, 5},
                                          {"little", "", 0, 4, 4}},
                                         {{0, 1, 490, {}}, {0, 2, 5, {}}, {0, 3, 4, {}}}));
  EXPECT_THAT(names(graph), ElementsAre("main", "much", "limit"));
  EXPECT_THAT(calls(graph), UnorderedElementsAre("main>much 490", "main>limit 5"));
  EXPECT_EQ(graph.left_out, 1u);
}

TEST(CallGraph, FunctionsThatOnlyPassACallOnBecomePartOfTheEdge) {
  const CallGraph graph = prune(graph_of({{"main", "", 0, 1000, 100},
                                          {"wrapper", "", 0, 900, 1},
                                          {"inner", "", 0, 899, 2},
                                          {"work", "", 0, 897, 897}},
                                         {{0, 1, 900, {}}, {1, 2, 899, {}}, {2, 3, 897, {}}}));
  EXPECT_THAT(names(graph), ElementsAre("main", "work"));
  ASSERT_EQ(graph.edges.size(), 1u);
  EXPECT_EQ(graph.edges[0].ns, 897u);
  EXPECT_THAT(graph.edges[0].through, ElementsAre("wrapper", "inner"));
  EXPECT_EQ(graph.left_out, 0u) << "they are on the edge";
}

TEST(CallGraph, OneWithTimeOrCallsOfItsOwnStays) {
  const CallGraph graph =
      prune(graph_of({{"main", "", 0, 1000, 0},
                      {"busy", "", 0, 1000, 300},
                      {"forks", "", 0, 700, 0},
                      {"a", "", 0, 400, 400},
                      {"b", "", 0, 300, 300}},
                     {{0, 1, 1000, {}}, {1, 2, 700, {}}, {2, 3, 400, {}}, {2, 4, 300, {}}}));
  EXPECT_THAT(names(graph), ElementsAre("main", "busy", "forks", "a", "b"));
}

TEST(CallGraph, RecursionIsKept) {
  const CallGraph graph =
      prune(graph_of({{"main", "", 0, 1000, 0}, {"a", "", 0, 1000, 0}, {"b", "", 0, 1000, 1000}},
                     {{0, 1, 1000, {}}, {1, 2, 1000, {}}, {2, 1, 900, {}}, {1, 1, 100, {}}}));
  EXPECT_THAT(names(graph), ElementsAre("main", "a", "b"));
  EXPECT_EQ(graph.edges.size(), 4u);
}

TEST(CallGraph, ItHasAtMostSoManyFunctionsAndCalls) {
  std::vector<std::string> storage(500);
  std::vector<CallGraphNode> nodes;
  std::vector<CallGraphEdge> edges;
  for (std::uint32_t i = 0; i < storage.size(); ++i) {
    storage[i] = "f" + std::to_string(i);
    nodes.push_back({storage[i], "", 0, 1'000'000 - i, 1'000'000 - i});
    for (std::uint32_t j = 0; j < i; ++j) edges.push_back({j, i, 500'000, {}});
  }
  const CallGraph graph = prune(graph_of(nodes, edges, 1'000'000));
  EXPECT_EQ(graph.nodes.size(), 80u);
  EXPECT_EQ(graph.nodes.back().name, "f79");
  EXPECT_EQ(graph.edges.size(), 160u);
  EXPECT_EQ(graph.left_out, 420u);
}

TEST(CallGraph, NothingIsNoError) {
  EXPECT_THAT(dot_text(prune({}), "empty"), HasSubstr("digraph"));
}

TEST(CallGraph, NativeTimeIsThePythonFunctionsThatCalledIt) {
  FakeRecording fake;
  const ThreadId thread = fake.thread(100, 100, "python3");
  const FrameId start = fake.native("_start", "/usr/bin/python3");
  const FrameId main = fake.python("/home/u/train.py", "main", 1, 2);
  const FrameId step = fake.python("/home/u/train.py", "step", 10, 11);
  const FrameId gemm = fake.native("gemm", "/usr/lib/libmkl.so");
  fake.sample(thread, fake.stack({start, main, gemm, step, gemm, fake.kernel("page_fault")}));
  fake.sample(thread, fake.stack({start, main, gemm}));
  fake.sample(thread, fake.stack({start, gemm}));
  const Attribution attribution(fake);
  const Analysis analysis(attribution);
  const CallGraph graph = call_graph_of(
      analysis.python_only(analysis.counts().all(), /*whole=*/true), analysis.functions());
  EXPECT_THAT(names(graph), UnorderedElementsAre("(no Python frame)", "main", "step"));
  EXPECT_THAT(calls(graph), ElementsAre("main>step 10000000"));
  EXPECT_EQ(graph.ns, 30'000'000u);
  for (const CallGraphNode& node : graph.nodes) EXPECT_EQ(node.own_ns, 10'000'000u) << node.name;
}

TEST(CallGraph, NamesAreNeitherDotNorTerminalText) {
  const std::string hostile = "a\"]; n0 -> n9 [label=\"\\N&lt;\x1b[31m\n" + std::string(5000, 'x');
  const std::string text =
      dot_text(graph_of({{hostile, hostile, 1, 1000, 1000}, {"b", "", 0, 900, 900}},
                        {{0, 1, 900, {hostile}}}),
               hostile);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr(R"(a\"]; n0 -> n9 [label=\"\\N&amp;lt;\\x1b)"));
  EXPECT_LT(text.size(), 10'000u);
  // Each statement is one line, and outside of quotes there is nothing of a name's.
  std::size_t edges = 0, quotes = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
      continue;
    }
    if (text[i] == '"') ++quotes;
    if (text[i] == '\n') {
      EXPECT_EQ(quotes % 2, 0u);
    }
    if (quotes % 2 == 0 && text.compare(i, 2, "->") == 0) ++edges;
  }
  EXPECT_EQ(edges, 1u);
}

}  // namespace
}  // namespace dynprof
