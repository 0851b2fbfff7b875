// What torch remembers, merged into the ledger; and documents no friendly process would leave.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/torch_history.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

struct PastTest : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);
  FakeEdges edges{fake, thread};
  std::uint64_t start = fake.meta().start_ns;
  using List = std::vector<std::string>;

  // `ms` from the start of the recording.
  Json row(const std::string& id, std::int64_t ms, double wall_s,
           const std::string& kind = "forward") {
    return {{"trace_id", id},
            {"attempt", 0},
            {"kind", kind},
            {"function", "forward"},
            {"file", "/m.py"},
            {"line", 7},
            {"start_ns", static_cast<std::int64_t>(start) + ms * 1'000'000},
            {"wall_s", wall_s}};
  }
  void remember(const std::string& when, std::vector<Json> rows, Json breaks = Json::array()) {
    Json document{{"version", 1}, {"compiles", std::move(rows)}, {"graph_breaks", breaks}};
    fake.fact(100, "history", when, document.dump());
  }
  static List found(const Attribution& attribution) {
    List list;
    for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
      const Compile& compile = attribution.compiles()[i];
      list.push_back(attribution.file_stem(i) + (compile.before_attach ? " before" : "") +
                     (attribution.past(i) != nullptr ? " known" : ""));
    }
    return list;
  }
};

TEST_F(PastTest, RowsOfTheLedgerGetTheirReasons) {
  edges.compile("0/1", 0);
  edges.begin("dynamo");
  edges.phase("compile_attempt_0", 10);
  edges.compile("0/1", 1);
  edges.phase("compile_attempt_1", 90);
  edges.end();
  Json known = row("0/1", 0, 0.099);
  known["recompile_reason"] = "0/0: size mismatch";
  known["restart_reasons"] = {"graph break", "another"};
  known["failed"] = "BackendCompilerFailed: no";
  known["graph_breaks"] = {{{"reason", "print"}, {"file", "/m.py"}, {"line", 12}}};
  known["cache"] = {{"fx_graph_hits", 2}, {"aot_autograd_misses", 1}};
  known["backward_from_cache"] = true;
  known["metrics"] = {{"graph_op_count", 5}, {"compile_id", "0/1"}, {"feature_usage", {{"a", 1}}}};
  remember("detach", {known});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_1 known", "_compile_inner_0_1_1 known"}));
  const PastCompile& past = *attribution.past(1);
  EXPECT_EQ(past.recompile_reason, "0/0: size mismatch");
  EXPECT_EQ(past.restart_reasons, (List{"graph break", "another"}));
  EXPECT_EQ(past.failed, "BackendCompilerFailed: no");
  ASSERT_EQ(past.graph_breaks.size(), 1u);
  EXPECT_EQ(past.graph_breaks[0].line, 12);
  EXPECT_EQ(past.caches->fx_hits, 2u);
  EXPECT_EQ(past.caches->aot_misses, 1u);
  EXPECT_EQ(past.backward_from_cache, true);
  EXPECT_EQ(past.metrics.size(), 2u) << "only what is short";
  EXPECT_EQ(attribution.function(0).qualname, "forward");
}

TEST_F(PastTest, WhatWasThereBefore) {
  edges.forward("0/1");
  remember("attach", {row("0/0", -900, 0.5), row("0/0", -300, 0.1, "backward")});
  remember("detach", {row("0/0", -900, 0.5), row("0/0", -300, 0.1, "backward"),
                      row("0/1", 1, 0.095), row("7/0", 300, 0.1)});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0-before before known",
                                      "compile_backward_0_0-before before known",
                                      "_compile_inner_0_1 known", "_compile_inner_7_0 known"}));
  const Compile& first = attribution.compiles()[0];
  EXPECT_TRUE(first.exact);
  EXPECT_TRUE(first.complete());
  EXPECT_EQ(first.wall_ns(1), 500'000'000u);
  EXPECT_EQ(first.thread, kNoThread);
  EXPECT_FALSE(attribution.compiles()[3].before_attach) << "not seen, but during the recording";
}

TEST_F(PastTest, TheSameIdAfterAReset) {
  edges.forward("0/0");
  remember("attach", {row("0/0", -900, 0.5), row("0/0", -300, 0.1)});
  remember("detach", {row("0/0", -900, 0.5), row("0/0", -300, 0.1), row("0/0", 0, 0.1)});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution),
            (List{"_compile_inner_0_0-before before known",
                  "_compile_inner_0_0.2-before before known", "_compile_inner_0_0 known"}));
  EXPECT_EQ(attribution.past(2)->wall_ns, 100'000'000u);
}

TEST_F(PastTest, OneThatEndedWhileWeAttachedIsNotTwo) {
  edges.forward("0/0");
  remember("attach", {row("0/0", 0, 0.1)});
  EXPECT_EQ(found(Attribution(fake)), (List{"_compile_inner_0_0 known"}));
}

TEST_F(PastTest, SampledOnesAreFoundByTime) {
  fake.sample(thread, torch.running());
  fake.pass_ms(500);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000), 0, 5);
  fake.sample(thread, torch.running());
  Json late = row("0/0", 500, 0.07);
  late.erase("start_ns");  // by torch's own clock then
  late["metrics"] = {
      {"start_time_us",
       (fake.meta().realtime_offset_ns + static_cast<std::int64_t>(start)) / 1000 + 500'000}};
  remember("detach", {row("0/0", 90'000, 0.1), late});
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 known", "_compile_inner_0_0.2 known"}));
  EXPECT_EQ(attribution.past(0)->wall_ns, 70'000'000u);
  EXPECT_EQ(attribution.compiles()[0].samples, 5u);
}

TEST_F(PastTest, ARowWithoutATimeIsOfTheOnlyOneThereIs) {
  edges.forward("0/0");
  Json untimed = row("0/0", 0, 0.1);
  untimed["start_ns"] = nullptr;
  remember("detach", {untimed});
  EXPECT_EQ(found(Attribution(fake)), (List{"_compile_inner_0_0 known"}));
}

TEST_F(PastTest, TorchCallsAnExportAForward) {
  edges.compile("0/0");
  edges.begin("compile_fx_aot");
  fake.pass_ms(50);
  edges.end();
  remember("detach", {row("0/0", 0, 0.05)});
  EXPECT_EQ(found(Attribution(fake)), (List{"export_0_0 known"}));
}

TEST_F(PastTest, OtherProcessesAreApart) {
  edges.forward("0/0");
  fake.fact(200, "history", "detach", Json{{"compiles", {row("0/0", 0, 0.1)}}}.dump());
  EXPECT_EQ(found(Attribution(fake)),
            (List{"_compile_inner_0_0", "pid200-_compile_inner_0_0 known"}));
}

TEST_F(PastTest, AForkedChildHasNoCompilesOfItsParent) {
  edges.forward("0/0");
  fake.edit_tables().lives.push_back(
      {.time_ns = start + 150'000'000, .pid = 200, .kind = LifeKind::kFork, .parent_pid = 100});
  fake.sample(thread, 0, 0, 0, 100);
  fake.fact(200, "history", "detach",
            Json{{"compiles", {row("0/0", 0, 0.1), row("1/0", 200, 0.1)}}}.dump());
  EXPECT_EQ(found(Attribution(fake)),
            (List{"_compile_inner_0_0", "pid200-_compile_inner_1_0 known"}));
}

TEST_F(PastTest, BreaksOfTheWholeProcess) {
  Json one{{"reason", "print"}, {"file", "/m.py"}, {"line", 3}};
  remember("attach", {}, {one});
  remember("detach", {}, {one, {{"reason", "skip"}}});
  Attribution attribution(fake);
  ASSERT_EQ(attribution.history().graph_breaks.size(), 2u) << "the last word counts";
  EXPECT_EQ(attribution.history().graph_breaks[1].file, "");
}

TEST_F(PastTest, HostileDocuments) {
  Json row_of_lies = row("0/0", 0, 0.1);
  for (const char* name : {"attempt", "line", "start_ns", "wall_s", "graph_breaks", "phases",
                           "restart_reasons", "recompile_reason", "failed", "cache", "metrics",
                           "cudagraph_skip_reason", "backward_from_cache", "function", "file"}) {
    row_of_lies[name] = Json::array({Json::array(), 1, "x", nullptr});
  }
  Json wild = row("0/1", 0, 1e300);
  wild["attempt"] = 99999999999;
  wild["line"] = -3;
  wild["start_ns"] = 18'446'744'073'709'551'615u;
  wild["restart_reasons"] = Json::array();
  for (int i = 0; i < 1500; ++i)
    wild["restart_reasons"].push_back(std::string(30'000 / (i + 1), 'x'));
  Json no_id = row("", 0, 1);
  Json bad_id = row("1/2/3", 0, 1);
  Json bad_kind = row("0/0", 0, 1, "sideways");
  remember("detach", {row_of_lies, wild, no_id, bad_id, bad_kind, 5, "row", nullptr});
  for (std::string text :
       {"", "{", "[]", "null", "\xff\xfe", "{\"compiles\":5}", "{\"compiles\":{\"a\":1}}"}) {
    fake.fact(100, "history", "detach", text);
  }
  fake.fact(100, "history", "attach", std::string(500'000, '['));
  fake.fact(100, "history", "attach", "{\"compiles\":[" + std::string(100'000, '[') + "]}");
  Attribution attribution(fake);
  EXPECT_EQ(found(attribution), (List{"_compile_inner_0_0 known", "_compile_inner_0_1 known"}));
  EXPECT_EQ(attribution.history().unreadable, 6u + 7u);
  const PastCompile& wild_one = *attribution.past(1);
  EXPECT_EQ(wild_one.attempt, 0);
  EXPECT_EQ(wild_one.line, 0);
  EXPECT_FALSE(wild_one.wall_ns);
  EXPECT_EQ(wild_one.restart_reasons.size(), 1000u);
  EXPECT_EQ(wild_one.restart_reasons[0].size(), 16'384u);
  EXPECT_FALSE(attribution.compiles()[0].exact);
}

}  // namespace
}  // namespace dynprof
