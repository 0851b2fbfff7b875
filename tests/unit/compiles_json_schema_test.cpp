#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "symbolizer/attribution/generated.h"
#include "symbolizer/export/compiles_json.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

struct CompilesJson : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 103);
  FakeEdges edges{fake, thread};

  Json json() {
    Attribution attribution(fake);
    return Json::parse(compiles_json(Analysis(attribution)));
  }
};

// docs/reference/compiles.schema.json names every phase and every kind of wait, in their order.
TEST(CompilesJsonSchema, NamesEveryPhaseAndWaitKind) {
  std::ifstream file("docs/reference/compiles.schema.json");  // tests run in the root of the tree
  const Json names = Json::parse(file, nullptr, false)["$defs"];
  std::vector<std::string> phases, kinds;
  for (int i = 0; i < static_cast<int>(Phase::kCount); ++i)
    phases.emplace_back(phase_text(static_cast<Phase>(i)));
  for (std::size_t i = 0; i < kWaitKinds; ++i)
    kinds.emplace_back(wait_kind_text(static_cast<WaitKind>(i)));
  EXPECT_EQ(names["phase_name"]["enum"], Json(phases));
  EXPECT_EQ(names["wait_kind"]["enum"], Json(kinds));
}

// The schema is a contract: these fields, in this order; later ones come after.
TEST_F(CompilesJson, FieldsAreThoseOfTheSchema) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  Json document = json();
  std::vector<std::string> top{"version",      "pid",     "torch", "python",
                               "frequency_hz", "samples", "lost",  "compiles"};
  std::vector<std::string> each{
      "trace_id",        "attempt", "kind",     "function", "file",         "line",
      "process",         "thread",  "start_ns", "wall_s",   "cpu_s",        "wait_s",
      "children_cpu_s",  "exact",   "complete", "phases",   "graph_breaks", "recompile_reason",
      "restart_reasons", "failed",  "samples",  "generated"};
  auto check = [](const Json& object, const std::vector<std::string>& names) {
    std::size_t i = 0;
    for (auto it = object.begin(); it != object.end() && i < names.size(); ++it, ++i) {
      EXPECT_EQ(it.key(), names[i]);
    }
    EXPECT_EQ(i, names.size());
  };
  check(document, top);
  check(document["compiles"][0], each);
  check(document["compiles"][0]["phases"][0], {"name", "wall_s", "cpu_s", "samples"});
  EXPECT_EQ(document["version"], 1);
  EXPECT_EQ(document["pid"], 100);
  EXPECT_EQ(document["torch"], "2.13.0+cpu");
}

TEST_F(CompilesJson, WhatIsKnownAndWhatIsNot) {
  CodeId user = fake.code("/home/me/model.py", "Block.forward", 7);
  fake.edit_trailer().counters = {{"samples", 9}, {"ring_full", 2}, {"truncated", 0}};
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 1, 1, 0x1000, user), 0, 2);
  fake.skip(5);
  fake.sample(thread, torch.lowering(), torch.forward(0, 1, 1, 0x1000, user));
  fake.sample(thread, torch.running());
  Json document = json();
  EXPECT_EQ(document["samples"], 5);
  EXPECT_EQ(document["lost"], (Json{{"ring_full", 2}, {"truncated", 0}}));
  ASSERT_EQ(document["compiles"].size(), 2u);

  const Json& never_sampled = document["compiles"][0];
  EXPECT_EQ(never_sampled["attempt"], 0);
  EXPECT_EQ(never_sampled["samples"], 0);
  for (const char* time : {"start_ns", "wall_s", "cpu_s", "wait_s", "children_cpu_s"}) {
    EXPECT_TRUE(never_sampled[time].is_null()) << time << " is not known, so not 0";
  }
  EXPECT_EQ(never_sampled["phases"], Json::array());

  const Json& compile = document["compiles"][1];
  EXPECT_EQ(compile["trace_id"], "0/1");
  EXPECT_EQ(compile["attempt"], 1);
  EXPECT_EQ(compile["kind"], "forward");
  EXPECT_EQ(compile["function"], "forward");
  EXPECT_EQ(compile["file"], "/home/me/model.py");
  EXPECT_EQ(compile["line"], 7);
  EXPECT_EQ(compile["process"], 100);
  EXPECT_EQ(compile["thread"], 103);
  EXPECT_EQ(compile["start_ns"], 1'010'000'000);
  EXPECT_EQ(compile["wall_s"], 0.08);
  EXPECT_EQ(compile["cpu_s"], 0.03);
  EXPECT_EQ(compile["exact"], false);
  EXPECT_EQ(compile["complete"], true);
  EXPECT_EQ(compile["phases"],
            Json::parse(R"([{"name":"dynamo","wall_s":null,"cpu_s":0.02,"samples":2},
                            {"name":"inductor","wall_s":null,"cpu_s":0.01,"samples":1}])"));
  EXPECT_TRUE(compile["recompile_reason"].is_null());
  EXPECT_TRUE(compile["failed"].is_null());
  EXPECT_TRUE(compile["cudagraph_skip_reason"].is_null());
  EXPECT_EQ(compile["graph_breaks"], Json::array());
  EXPECT_EQ(compile["name"], "_compile_inner_0_1_1");
}

TEST_F(CompilesJson, IncompleteOnEitherSide) {
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000));
  fake.sample(thread, torch.tracing(), torch.forward(1, 0, 0, 0x1000));
  fake.sample(thread, torch.tracing(), torch.forward(2, 0, 0, 0x1000));
  Json document = json();
  EXPECT_EQ(document["compiles"][0]["complete"], false);
  EXPECT_EQ(document["compiles"][1]["complete"], true);
  EXPECT_EQ(document["compiles"][2]["complete"], false);
}

TEST_F(CompilesJson, NamesThatAreNotUtf8StayJson) {
  CodeId user = fake.code("/\xff/\"\n.py", "\xed\xb2\x80", 7);
  fake.edit_meta().torch = "\xfe";
  fake.edit_meta().python = "";
  fake.edit_meta().target_pid = 0;
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000, user));
  Json document = json();
  EXPECT_EQ(document["torch"], "\xef\xbf\xbd");
  EXPECT_TRUE(document["python"].is_null());
  EXPECT_TRUE(document["pid"].is_null());
  EXPECT_EQ(document["compiles"][0]["file"], "/\xef\xbf\xbd/\"\n.py");
}

TEST_F(CompilesJson, ExactTimes) {
  edges.cpu_ns = 1'000'000;
  edges.forward("0/0");
  SpanEdge& last = fake.edit_tables().edges.back();
  last.cpu_ns = 41'000'000;
  fake.sample_at(fake.meta().start_ns + 50'000'000, thread, torch.lowering(),
                 torch.forward(0, 0, 0, 0x1000));
  Json document = json();
  const Json& compile = document["compiles"][0];
  EXPECT_EQ(compile["exact"], true);
  EXPECT_EQ(compile["complete"], true);
  EXPECT_EQ(compile["start_ns"], fake.meta().start_ns);
  EXPECT_EQ(compile["wall_s"], 0.1);
  EXPECT_EQ(compile["cpu_s"], 0.01) << "its samples";
  EXPECT_EQ(compile["wait_s"], 0.06) << "by the thread's CPU clock at both ends";
  EXPECT_EQ(compile["nested_wall_s"], 0.0);
  EXPECT_EQ(compile["phases"],
            Json::parse(R"([{"name":"dynamo","wall_s":0.015,"cpu_s":null,"samples":0},
                            {"name":"guards","wall_s":0.015,"cpu_s":null,"samples":0},
                            {"name":"aot_autograd","wall_s":0.02,"cpu_s":null,"samples":0},
                            {"name":"inductor","wall_s":0.03,"cpu_s":0.01,"samples":1},
                            {"name":"wait","wall_s":0.02,"cpu_s":null,"samples":0}])"));
  EXPECT_EQ(compile["torch_phases"].size(), 9u);
  EXPECT_EQ(compile["torch_phases"][1],
            Json::parse(R"({"name":"entire_frame_compile","phase":"dynamo","count":1,
                            "wall_s":0.095,"exclusive_s":0.0})"));
  EXPECT_EQ(document["edges"]["count"], 18);
}

TEST_F(CompilesJson, WhatTorchRemembers) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 1, 1, 0x1000), 0, 2);
  fake.sample(thread, torch.running());
  Json row{{"trace_id", "0/1"},
           {"kind", "forward"},
           {"function", "forward"},
           {"file", "/m.py"},
           {"line", 3},
           {"start_ns", fake.meta().start_ns + 5'000'000},
           {"wall_s", 0.0251},
           {"graph_breaks", {{{"reason", "print"}, {"file", "/m.py"}, {"line", 9}}}},
           {"recompile_reason", "size mismatch"},
           {"restart_reasons", {"a break"}},
           {"failed", "Unsupported: x"},
           {"cache", {{"fx_graph_hits", 1}}},
           {"backward_from_cache", false},
           {"cudagraph_skip_reason", "mutated inputs"},
           {"metrics", {{"guard_count", 12}, {"dynamo_config", std::string(5000, 'x')}}}};
  Json before = row;
  before["trace_id"] = "0/0";
  before["start_ns"] = 400'000'000;
  before["phases"] = {{{"name", "inductor"}, {"wall_s", 0.02}}};
  fake.fact(100, "history", "attach", Json{{"compiles", {before}}}.dump());
  fake.fact(100, "history", "detach",
            Json{{"compiles", {before, row}}, {"graph_breaks", {{{"reason", "alone"}}}}}.dump());
  Json document = json();
  ASSERT_EQ(document["compiles"].size(), 3u);
  const Json& first = document["compiles"][0];
  EXPECT_EQ(first["before_attach"], true);
  EXPECT_EQ(first["exact"], true);
  EXPECT_EQ(first["wall_s"], 0.0251);
  EXPECT_EQ(first["samples"], 0);
  EXPECT_TRUE(first["thread"].is_null() && first["cpu_s"].is_null());
  EXPECT_EQ(first["function"], "forward");
  EXPECT_EQ(first["phases"],
            Json::parse(R"([{"name":"inductor","wall_s":0.02,"cpu_s":null,"samples":0}])"));
  EXPECT_EQ(first["name"], "_compile_inner_0_0-before");

  const Json& restarted = document["compiles"][1];
  EXPECT_EQ(restarted["attempt"], 0);
  EXPECT_EQ(restarted["recompile_reason"], "size mismatch");
  EXPECT_EQ(restarted["graph_breaks"], Json::array()) << "they are the last attempt's";
  EXPECT_TRUE(restarted["failed"].is_null());
  const Json& last = document["compiles"][2];
  EXPECT_EQ(last["attempt"], 1);
  EXPECT_EQ(last["before_attach"], false);
  EXPECT_EQ(last["exact"], false);
  EXPECT_EQ(last["torch_wall_s"], 0.0251);
  EXPECT_EQ(last["cudagraph_skip_reason"], "mutated inputs");
  EXPECT_EQ(last["graph_breaks"],
            Json::parse(R"([{"reason":"print","file":"/m.py","line":9,"stack":[]}])"));
  EXPECT_EQ(last["restart_reasons"], Json::parse(R"(["a break"])"));
  EXPECT_EQ(last["failed"], "Unsupported: x");
  EXPECT_EQ(last["cache"]["fx_graph_hits"], 1);
  EXPECT_EQ(last["backward_from_cache"], false);
  EXPECT_EQ(last["metrics"], Json::parse(R"({"guard_count":12})"));
  EXPECT_EQ(document["graph_breaks"],
            Json::parse(R"([{"reason":"alone","file":null,"line":null,"stack":[]}])"));
}

TEST_F(CompilesJson, GraphBreaksRecordedAsTheyHappened) {
  edges.compile("0/0", 0);
  edges.begin("dynamo");
  edges.begin("compile_attempt_0");
  fake.pass_ms(10);
  edges.graph_break("print", {edges.call("/m.py", 3, "step"), edges.call("/m.py", 9, "inner")});
  edges.end();
  edges.compile("0/0", 1);
  edges.begin("compile_attempt_1");
  fake.pass_ms(5);
  edges.graph_break("");  // torch's note of it was not readable
  edges.end();
  edges.end();
  edges.compile("7/7");  // of a compile that was not seen
  edges.graph_break("lost");
  fake.fact(100, "history", "detach",
            Json{{"compiles",
                  {{{"trace_id", "0/0"},
                    {"kind", "forward"},
                    {"start_ns", fake.meta().start_ns},
                    {"wall_s", 0.015},
                    {"graph_breaks", {{{"reason", "of history"}}}}}}}}
                .dump());
  Json document = json();
  ASSERT_EQ(document["compiles"].size(), 2u);
  EXPECT_EQ(document["compiles"][0]["graph_breaks"], Json::array());
  const Json& breaks = document["compiles"][1]["graph_breaks"];
  ASSERT_EQ(breaks.size(), 2u);
  EXPECT_EQ(breaks[0], Json::parse(R"({"reason":"print","file":"/m.py","line":9,
                "stack":[{"file":"/m.py","line":3,"function":"step"},
                         {"file":"/m.py","line":9,"function":"inner"}]})"));
  EXPECT_EQ(breaks[1], Json::parse(R"({"reason":null,"file":null,"line":null,"stack":[]})"));
}

TEST_F(CompilesJson, GraphBreaksOfAThreadWhosePhasesAreNotWatched) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000), 0, 3);
  edges.compile("0/0");
  edges.graph_break("print");
  fake.sample(thread, torch.running());
  EXPECT_EQ(json()["compiles"][0]["graph_breaks"].size(), 1u);
}

TEST_F(CompilesJson, Agreement) {
  TorchState state = fake.torch_state("0/0", 0, {"dynamo"});
  auto marker = FakeRecording::compile_marker(0, 0, 0x1000);
  fake.sample(thread, torch.tracing(), fake.torch_context(state, {marker}), 0, 3);
  marker.compile_id = 1;
  fake.sample(thread, torch.tracing(), fake.torch_context(state, {marker}));
  EXPECT_EQ(json()["agreement"], Json::parse(R"({"both":4,"differ":1})"));
}

TEST_F(CompilesJson, GeneratedFiles) {
  edges.forward("0/0");
  edges.backward("0/0");
  auto file = [&](const std::string& id, const std::string& direction, const std::string& name) {
    Json description{{"trace_id", id}, {"kind", "wrapper"},      {"direction", direction},
                     {"name", name},   {"origin", "/tmp/c1.py"}, {"truncated", false}};
    fake.fact(100, "generated", description.dump(), "content of " + name);
  };
  file("0/0", "forward", "wrapper.py");
  file("0/0", "backward", "wrapper.py");
  file("0/0", "", "../../etc/passwd");
  file("9/9", "", "lost.py");
  file("", "", "");
  fake.fact(100, "generated", "no json", "x");
  fake.fact(100, "generated", "[1]", "x");
  Json document = json();
  auto paths = [&](std::size_t compile) {
    std::vector<std::string> list;
    for (const Json& one : document["compiles"][compile]["generated"]) list.push_back(one["path"]);
    return list;
  };
  EXPECT_EQ(paths(0), (std::vector<std::string>{"generated/0_0/wrapper.py",
                                                "generated/0_0/_._.._etc_passwd"}));
  EXPECT_EQ(paths(1), (std::vector<std::string>{"generated/0_0/wrapper_2.py"}));
  EXPECT_EQ(document["compiles"][0]["generated"][0],
            Json::parse(R"({"path":"generated/0_0/wrapper.py","kind":"wrapper",
                            "direction":"forward","origin":"/tmp/c1.py","truncated":false})"));
  Attribution attribution(fake);
  Generated generated(attribution);
  ASSERT_EQ(generated.files().size(), 5u);
  EXPECT_EQ(generated.files()[3].path(), "generated/9_9/lost.py");
  EXPECT_EQ(generated.files()[4].directory, "unknown");
}

TEST_F(CompilesJson, ManyFilesOfOneName) {
  for (int i = 0; i < 12'000; ++i) {
    fake.edit_tables().facts.push_back(
        Fact{100, 1, fake.string("generated"), fake.string(R"({"name":"A.py"})"), 0});
  }
  Attribution attribution(fake);
  EXPECT_EQ(Generated(attribution).files().size(), 10'000u);
  EXPECT_EQ(Generated(attribution).files().back().name, "A_10000.py");
}

TEST_F(CompilesJson, AnEmptyRecording) {
  Json document = json();
  EXPECT_EQ(document["samples"], 0);
  EXPECT_EQ(document["compiles"], Json::array());
}

}  // namespace
}  // namespace dynprof
