// The part of a chrome trace that edges give: exact slices, runs of compiled regions, arrows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/export/chrome.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

using nlohmann::json;

class TextSink final : public ByteSink {
 public:
  explicit TextSink(std::string& text) : text_(text) {}
  void write(std::string_view bytes) override { text_ += bytes; }
  bool failed() const override { return false; }
  Result<void> finish() override { return {}; }

 private:
  std::string& text_;
};

// What viewers need: slices of a row apart or inside each other, the inner beginning later; both
// ends of each arrow.
void expect_drawable(const json& trace) {
  std::map<std::pair<int, long long>, std::vector<std::pair<long long, long long>>> rows;  // in ns
  std::map<std::pair<std::string, long long>, std::string> flows;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      long long begin = std::llround(event["ts"].get<double>() * 1000);
      long long length = std::llround(event["dur"].get<double>() * 1000);
      ASSERT_GT(length, 0) << event;
      rows[{event["pid"], event["tid"]}].emplace_back(begin, begin + length);
    } else if (event["ph"] != "M") {
      flows[{event["cat"], event["id"]}] += event["ph"].get<std::string>();
    }
  }
  for (auto& [row, slices] : rows) {
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<std::pair<long long, long long>> open;
    for (const auto& slice : slices) {
      while (!open.empty() && open.back().second <= slice.first) open.pop_back();
      if (!open.empty()) {
        EXPECT_LT(open.back().first, slice.first) << row.second;
        EXPECT_LE(slice.second, open.back().second) << row.second;
      }
      open.push_back(slice);
    }
  }
  for (const auto& [flow, ends] : flows) EXPECT_EQ(ends, "sf") << flow.first;
}

struct ChromeExact : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);
  FakeEdges edges{fake, thread};

  json trace(std::vector<CompileIndex> compiles = {}) {
    Attribution attribution(fake);
    std::string text;
    EXPECT_TRUE(write_chrome_trace(Analysis(attribution), std::move(compiles),
                                   std::make_unique<TextSink>(text)));
    json made = json::parse(text);
    expect_drawable(made);
    return made;
  }
  // "name begin+length" in milliseconds, in order of begin.
  static std::vector<std::string> slices(const json& trace, const std::string& category) {
    std::vector<std::pair<double, std::string>> found;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] != "X" || event["cat"] != category) continue;
      double ts = event["ts"], dur = event["dur"];
      found.emplace_back(ts, event["name"].get<std::string>() + ' ' +
                                 std::to_string(static_cast<int>(ts / 1000)) + '+' +
                                 std::to_string(static_cast<int>(dur / 1000 + 0.5)));
    }
    std::sort(found.begin(), found.end());
    std::vector<std::string> list;
    for (auto& [ts, text] : found) list.push_back(text);
    return list;
  }
  // "tid@ms -> tid@ms" per arrow.
  static std::vector<std::string> arrows(const json& trace, const std::string& category) {
    std::map<long long, std::pair<std::string, std::string>> found;
    for (const json& event : trace["traceEvents"]) {
      if ((event["ph"] != "s" && event["ph"] != "f") || event["cat"] != category) continue;
      double ts = event["ts"];
      std::string at = std::to_string(event["tid"].get<long long>()) + '@' +
                       std::to_string(static_cast<int>(ts / 1000));
      auto& arrow = found[event["id"]];
      (event["ph"] == "s" ? arrow.first : arrow.second) = at;
    }
    std::vector<std::string> list;
    for (auto& [id, arrow] : found) list.push_back(arrow.first + " -> " + arrow.second);
    return list;
  }
  using List = std::vector<std::string>;
};

TEST_F(ChromeExact, CompilesAttemptsAndPhases) {
  fake.pass_ms(10);
  edges.forward("0/0");
  json made = trace();
  EXPECT_EQ(slices(made, "compile"), (List{"Compile 0/0 forward attempt 0 10+100"}));
  EXPECT_EQ(slices(made, "attempt"), (List{"attempt 0 10+80"}));
  EXPECT_EQ(slices(made, "phase"),
            (List{"dynamo 10+100", "entire_frame_compile 10+95", "bytecode_tracing 10+10",
                  "backend_compile 20+70", "create_aot_dispatcher_function 20+70",
                  "inductor_compile 40+50", "async_compile.wait 70+20", "build_guards 90+15"}));
  for (const json& event : made["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_EQ(event["tid"], 1'000'000'100);
    EXPECT_EQ(event["args"]["trace_id"], "0/0");
    if (event["cat"] == "compile") {
      EXPECT_EQ(event["args"]["exact"], true);
    }
    if (event["name"] == "async_compile.wait") {
      EXPECT_EQ(event["args"]["phase"], "wait");
    }
  }
}

TEST_F(ChromeExact, EachAttemptIsASliceOfItsOwn) {
  edges.compile("0/0", 0);
  edges.begin("dynamo");
  edges.phase("compile_attempt_0", 10);
  edges.compile("0/0", 1);
  edges.phase("compile_attempt_1", 20);
  edges.end();
  json made = trace();
  EXPECT_EQ(slices(made, "compile"),
            (List{"Compile 0/0 forward attempt 0 0+10", "Compile 0/0 forward attempt 1 10+20"}));
  EXPECT_EQ(slices(made, "phase"), (List{"dynamo 0+10", "dynamo 10+20"}));
  fake.sample_at(fake.meta().start_ns + 15'000'000, thread, torch.tracing(),
                 torch.forward(0, 0, 1, 0x1000));
  EXPECT_EQ(slices(trace({1}), "attempt"), (List{"attempt 1 10+20"}));
}

TEST_F(ChromeExact, SamplesInItDrawNoSecondSlice) {
  edges.forward("0/0");
  for (std::uint64_t ms = 5; ms < 95; ms += 10) {
    fake.sample_at(fake.meta().start_ns + ms * 1'000'000, thread, torch.lowering(),
                   torch.forward(0, 0, 0, 0x1000));
  }
  json made = trace();
  EXPECT_EQ(slices(made, "compile").size(), 1u);
  EXPECT_EQ(slices(made, "phase").size(), 8u);
  EXPECT_FALSE(slices(made, "python_function").empty());
}

TEST_F(ChromeExact, SampledOnesBesideExactOnesDoNotMix) {
  // The outer one is known from samples alone, and shows on both sides of the exact one.
  auto outer = FakeRecording::compile_marker(7, 0, 0x1000);
  fake.sample(thread, torch.tracing(), fake.context({outer}), 0, 3);
  edges.forward("0/0");
  fake.sample(thread, torch.tracing(), fake.context({outer}), 0, 3);
  fake.sample(thread, torch.running());
  std::vector<std::string> compiles = slices(trace(), "compile");
  EXPECT_EQ(compiles,
            (List{"Compile 7/0 forward attempt 0 0+30", "Compile 0/0 forward attempt 0 30+100",
                  "Compile 7/0 forward attempt 0 130+30"}));
}

TEST_F(ChromeExact, RunsHaveTheNamesOfTorchsProfiler) {
  edges.region_begin("Torch-Compiled Region: 0/0");
  fake.pass_ms(3);
  edges.region_begin("Torch-Compiled Region: 1/0");
  fake.pass_ms(2);
  edges.region_end();
  edges.region_end();
  json made = trace();
  EXPECT_EQ(slices(made, "cpu_op"),
            (List{"Torch-Compiled Region: 0/0 0+5", "Torch-Compiled Region: 1/0 3+2"}));
  for (const json& event : made["traceEvents"]) {
    if (event["ph"] == "X") {
      EXPECT_EQ(event["tid"], 2'000'000'100);
    }
  }
}

TEST_F(ChromeExact, ArrowsFromACompileToItsRuns) {
  edges.forward("0/0");
  for (int i = 0; i < 3; ++i) {
    edges.region_begin("Torch-Compiled Region: 0/0");
    fake.pass_ms(1);
    edges.region_end();
    fake.pass_ms(9);
  }
  edges.forward("0/0");  // after torch._dynamo.reset()
  edges.region_begin("Torch-Compiled Region: 0/0");
  edges.region_begin("Torch-Compiled Region: 9/9");  // compiled before we came
  fake.pass_ms(1);
  edges.region_end();
  edges.region_end();
  EXPECT_EQ(arrows(trace(), "compiled code"),
            (List{"1000000100@99 -> 2000000100@100", "1000000100@99 -> 2000000100@110",
                  "1000000100@99 -> 2000000100@120", "1000000100@229 -> 2000000100@230"}));
}

TEST_F(ChromeExact, ArrowsFromForwardRunsToBackwardRuns) {
  ThreadId autograd = fake.thread(100, 107);
  FakeEdges others(fake, autograd);
  auto run = [&](FakeEdges& on, const std::string& name) {
    on.region_begin(name);
    fake.pass_ms(5);
    on.region_end();
  };
  run(edges, "Torch-Compiled Region: 0/0");
  run(edges, "Torch-Compiled Region: 0/0");
  run(edges, "Torch-Compiled Region: 1/0");
  run(others, "CompiledFunctionBackward: 0/0");
  run(others, "CompiledFunctionBackward: 0/0");
  run(others, "CompiledFunctionBackward: 0/0");  // no forward is left for it
  run(others, "CompiledFunctionBackward");       // of which region is not known
  EXPECT_EQ(arrows(trace(), "fwdbwd"),
            (List{"2000000100@5 -> 2000000107@15", "2000000100@0 -> 2000000107@20"}));
}

TEST_F(ChromeExact, WithoutEdgesNothingIsAdded) {
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000), 0, 3);
  json made = trace();
  EXPECT_EQ(slices(made, "phase"), (List{"dynamo 0+30"}));
  EXPECT_TRUE(slices(made, "attempt").empty() && slices(made, "cpu_op").empty());
}

TEST_F(ChromeExact, MissingDataIsReported) {
  edges.compile("0/0");
  edges.lose_begin("dynamo");
  edges.watch();
  fake.pass_ms(5);
  edges.begin("build_guards");
  fake.pass_ms(5);
  edges.unwatch();
  const json drawn = trace();
  for (const json& event : drawn["traceEvents"]) {
    if (event["name"] == "dynamo") {
      EXPECT_EQ(event["args"]["begin"], "not seen");
    }
    if (event["name"] == "build_guards") {
      EXPECT_EQ(event["args"]["end"], "not seen");
      EXPECT_FALSE(event["args"].contains("begin"));
    }
  }
}

// Edges in any order, of any kind and depth, at any time: it still draws.
TEST_F(ChromeExact, RandomEdgesStayDrawable) {
  ThreadId other = fake.thread(100, 101);
  const std::vector<std::string> names{"dynamo",
                                       "compile_attempt_1",
                                       "build_guards",
                                       "",
                                       "entire_backward_compile",
                                       "entire_forward_compile",
                                       "Torch-Compiled Region: 0/0",
                                       "CompiledFunctionBackward: 0/0",
                                       "compiled_autograd"};
  std::mt19937_64 random(7);
  auto pick = [&](std::uint64_t below) { return random() % below; };
  for (int round = 0; round < 50; ++round) {
    fake.edit_tables().edges.clear();
    std::uint64_t time = fake.meta().start_ns;
    for (int i = 0; i < 300; ++i) {
      TorchState state = fake.torch_state(pick(3) == 0 ? "0/0"
                                          : pick(2)    ? "0/1"
                                                       : "",
                                          static_cast<std::int32_t>(pick(3)));
      for (std::uint64_t n = pick(4); n > 0; --n) {
        state.phases.push_back(fake.string(names[pick(names.size())]));
      }
      SpanEdge edge;
      time += pick(3) * pick(1'000'000);
      edge.time_ns = pick(50) == 0 ? pick(2) << 50 : time;
      edge.thread = pick(2) ? thread : other;
      edge.kind = static_cast<EdgeKind>(1 + pick(8));
      edge.name = fake.string(names[pick(names.size())]);
      edge.depth = static_cast<std::uint32_t>(pick(30) == 0 ? pick(1'000'000) : pick(6));
      edge.context = fake.torch_context(state);
      fake.edge(edge);
    }
    for (int i = 0; i < 20; ++i) {
      fake.sample_at(fake.meta().start_ns + pick(100'000'000), thread, torch.tracing(),
                     torch.forward(0, 0, static_cast<std::int32_t>(pick(2)), 0x1000));
    }
    trace();
    const Attribution attribution(fake);
    for (const ExactCompile& compile : attribution.exact().all()) {
      std::uint64_t sum = compile.nested_ns;
      for (std::uint64_t ns : compile.phase_ns) sum += ns;
      EXPECT_EQ(sum, compile.end_ns - compile.begin_ns);
    }
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace dynprof
