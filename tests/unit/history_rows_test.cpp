// What the fields of CompilationMetrics mean, which compile a graph break belongs to, and the text
// and JSON of it. How it is read is tested on real processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "symbolizer/base/text.h"
#include "user/cli/cmd_compiles.h"
#include "user/history/break_join.h"
#include "user/history/metric_fields.h"

namespace dynprof {
namespace {

MetricValue number(std::int64_t value) {
  MetricValue metric;
  metric.scalar.kind = RemoteValue::Kind::kInt;
  metric.scalar.integer = value;
  return metric;
}
MetricValue text(std::string value) {
  MetricValue metric;
  metric.scalar.kind = RemoteValue::Kind::kStr;
  metric.scalar.text = std::move(value);
  return metric;
}
MetricValue boolean(bool value) {
  MetricValue metric = number(value ? 1 : 0);
  metric.scalar.kind = RemoteValue::Kind::kBool;
  return metric;
}
MetricValue strings(const std::vector<std::string>& values) {
  MetricValue metric;
  metric.shape = MetricValue::Shape::kItems;
  for (const std::string& value : values) metric.items.push_back(text(value).scalar);
  return metric;
}

using Metrics = std::vector<std::pair<std::string, MetricValue>>;

HistoryRow row_of(Metrics metrics, std::int64_t offset_us = 0) {
  HistoryRow row;
  row.metrics = std::move(metrics);
  interpret_metrics(row, offset_us);
  return row;
}

HistoryRow forward(const std::string& id, const std::string& function, std::int64_t line,
                   const std::vector<std::string>& reasons = {}) {
  return row_of({{"compile_id", text(id)},
                 {"co_name", text(function)},
                 {"co_filename", text("/m.py")},
                 {"co_firstlineno", number(line)},
                 {"is_forward", boolean(true)},
                 {"restart_reasons", strings(reasons)}});
}

HistoryBreak broke(const std::string& reason, const std::string& function, std::int64_t line) {
  return {reason, {{"/m.py", line, function}, {"/lib.py", 3, "inner"}}, std::nullopt};
}

// ---- fields --------------------------------------------------------------------------------------

TEST(HistoryFields, EveryFieldLiesInsideKnownOnes) {
  std::set<std::string> known;
  for (const PhaseField& field : phase_fields()) {
    EXPECT_TRUE(std::string(field.name).ends_with("_us"));
    for (const char* outer : field.inside) EXPECT_TRUE(!outer || known.contains(outer)) << outer;
    EXPECT_TRUE(known.insert(field.name).second);
  }
}

TEST(HistoryFields, PhasesLeaveOutWhatIsNestedInThem) {
  HistoryRow row = row_of({{"dynamo_cumulative_compile_time_us", number(1'000'000)},
                           {"aot_autograd_cumulative_compile_time_us", number(700'000)},
                           {"pre_grad_pass_time_us", number(50'000)},
                           {"inductor_cumulative_compile_time_us", number(400'000)},
                           {"triton_compile_time_us", number(300'000)},
                           {"gc_time_us", number(0)}});
  std::map<std::string, double> self;
  double sum = 0;
  for (const HistoryPhase& phase : row.phases) {
    self[phase.torch_field] = phase.self_s;
    sum += phase.self_s;
  }
  EXPECT_EQ(row.phases.size(), 5u);  // nothing of a field that is 0
  EXPECT_NEAR(self["dynamo_cumulative_compile_time_us"], 0.3, 1e-9);
  EXPECT_NEAR(self["aot_autograd_cumulative_compile_time_us"], 0.25, 1e-9);
  // No code was generated, the kernels came out of a cache: they are part of what holds them.
  EXPECT_NEAR(self["inductor_cumulative_compile_time_us"], 0.1, 1e-9);
  EXPECT_NEAR(sum, 1.0, 1e-9);
  // What does not fit is never less than nothing.
  row = row_of({{"dynamo_cumulative_compile_time_us", number(10)}, {"gc_time_us", number(20)}});
  EXPECT_EQ(row.phases[0].self_s, 0);
}

TEST(HistoryFields, TimesThatCannotBeAreNone) {
  HistoryRow row = row_of({{"start_time_us", number(1'700'000'000'000'000)},
                           {"duration_us", number(-5)},
                           {"end_time_us", number(1LL << 60)}},
                          1'600'000'000'000'000);
  EXPECT_EQ(row.start_ns, 100'000'000'000'000'000);
  EXPECT_EQ(row.wall_s(), 0);
  row = row_of({{"start_time_us", number(1000)}, {"end_time_us", number(3000)}}, 5000);
  EXPECT_FALSE(row.start_ns);  // before this machine's boot
  EXPECT_DOUBLE_EQ(row.wall_s(), 0.002);
}

TEST(HistoryFields, Kinds) {
  using Kind = CompileKind;
  auto kind = [](Metrics metrics) { return row_of(std::move(metrics)).kind; };
  EXPECT_EQ(kind({{"is_forward", boolean(true)}}), Kind::kForward);
  EXPECT_EQ(kind({{"is_forward", boolean(false)}}), Kind::kBackward);
  EXPECT_EQ(kind({{"dynamo_cumulative_compile_time_us", number(1)}}), Kind::kForward);
  EXPECT_EQ(kind({{"backward_cumulative_compile_time_us", number(1)}}), Kind::kBackward);
  EXPECT_EQ(kind({{"inductor_cumulative_compile_time_us", number(1)}}), Kind::kExport);
  EXPECT_EQ(kind({{"compile_id", text("!3")}}), Kind::kCompiledAutograd);
  EXPECT_EQ(kind({{"compile_id", text("!3/1/0")}, {"is_forward", boolean(true)}}), Kind::kForward);
}

TEST(HistoryFields, BackwardFromCache) {
  auto told = [](std::int64_t aot_hit, std::int64_t aot_miss, std::int64_t fx_hit,
                 std::int64_t fx_miss, std::int64_t fx_remote_hit = 0) {
    return row_of({{"is_forward", boolean(true)},
                   {"aotautograd_local_cache_hit_count", number(aot_hit)},
                   {"aotautograd_local_cache_miss_count", number(aot_miss)},
                   {"inductor_fx_local_cache_hit_count", number(fx_hit)},
                   {"inductor_fx_local_cache_miss_count", number(fx_miss)},
                   {"inductor_fx_remote_cache_hit_count", number(fx_remote_hit)}})
        .backward_from_cache;
  };
  EXPECT_EQ(told(1, 0, 2, 0), true);
  EXPECT_EQ(told(1, 0, 1, 0), false);
  EXPECT_EQ(told(2, 0, 4, 0), true);
  EXPECT_EQ(told(1, 0, 1, 1, 1), true);  // one of them came from the remote cache
  EXPECT_FALSE(told(0, 1, 0, 2));
  EXPECT_FALSE(told(1, 0, 0, 0));  // a bundled entry
  EXPECT_FALSE(told(1, 1, 3, 0));
  EXPECT_FALSE(told(-1, 0, -2, 0));
}

TEST(HistoryFields, TraceIds) {
  EXPECT_EQ(frame_compile("3/1"), (FrameCompile{3, 1}));
  EXPECT_EQ(frame_compile("!7/3/1"), (FrameCompile{3, 1}));
  for (const char* id :
       {"", "!", "!7", "3", "3/", "/1", "3/1/", "a/1", "3/1x", "99999999999999999999/1", "!7/3"}) {
    EXPECT_FALSE(frame_compile(id)) << id;
  }
}

TEST(HistoryFields, RowsWithoutAFunctionGetTheirFrames) {
  auto nameless = [](const std::string& id, bool is_forward) {
    return row_of({{"compile_id", text(id)}, {"is_forward", boolean(is_forward)}});
  };
  std::vector<HistoryRow> rows = {forward("0/0", "old", 1),  forward("1/0", "older", 2),
                                  forward("0/0", "new", 3),  nameless("0/0", false),
                                  nameless("!4/0/1", true),  nameless("1/0", false),
                                  nameless("rubbish", false)};
  rows.push_back(row_of({{"compile_id", text("0/0")}}));
  ASSERT_EQ(rows.back().kind, CompileKind::kExport);
  name_by_frame(rows);
  EXPECT_EQ(rows[3].function, "new");
  EXPECT_EQ(rows[3].line, 3);
  EXPECT_EQ(rows[4].function, "new");
  EXPECT_EQ(rows[5].function, "");  // its forward is from before the reset
  EXPECT_EQ(rows[6].function, "");
  EXPECT_EQ(rows[7].function, "");  // an export counts its frames for itself
}

// ---- graph breaks --------------------------------------------------------------------------------

class HistoryBreaks : public ::testing::Test {
 protected:
  std::vector<int> joined(const FrameCompiles& compiles, std::int64_t frames, bool every = true) {
    CompileHistory history;
    history.rows = rows;
    history.graph_breaks = breaks;
    history.frames = frames;
    join_graph_breaks(history, compiles, every);
    std::vector<int> found;
    std::size_t listed = 0;
    for (const HistoryBreak& cause : history.graph_breaks) {
      found.push_back(cause.compile ? static_cast<int>(*cause.compile) : -1);
    }
    for (const HistoryRow& row : history.rows) listed += row.graph_breaks.size();
    EXPECT_EQ(listed,
              found.size() - static_cast<std::size_t>(std::count(found.begin(), found.end(), -1)));
    return found;
  }
  using Is = std::vector<int>;
  std::vector<HistoryRow> rows;
  std::vector<HistoryBreak> breaks;
};

TEST_F(HistoryBreaks, AsManyAsRowsWithTheReason) {
  rows = {forward("0/0", "f", 1, {"why"}), forward("0/1", "f", 1), forward("0/2", "f", 1, {"why"})};
  breaks = {broke("why", "f", 2), broke("why", "f", 3)};
  EXPECT_EQ(joined({{0, 3}}, 1), (Is{0, 2}));
  // One more of that reason: of a compile under way, or one that is forgotten.
  breaks.push_back(broke("why", "f", 2));
  EXPECT_EQ(joined({{0, 4}}, 1), (Is{-1, -1, -1}));
  breaks = {broke("why", "g", 2)};
  EXPECT_EQ(joined({{0, 3}}, 1), (Is{-1}));
}

TEST_F(HistoryBreaks, NotWithRowsOlderThanTheReset) {
  rows = {forward("0/0", "f", 1, {"why"}), forward("1/0", "g", 5)};
  breaks = {broke("why", "f", 2)};
  EXPECT_EQ(joined({{0, 1}, {1, 1}}, 2), (Is{0}));
  EXPECT_EQ(joined({{0, 1}}, 1), (Is{-1}));  // Dynamo has not counted 1/0
  EXPECT_EQ(joined({}, 0), (Is{-1}));
  EXPECT_EQ(joined({{0, 1}, {1, 1}}, 2, false), (Is{-1}));  // not all breaks were read
  rows.push_back(forward("0/0", "h", 9));                   // a reset after them
  EXPECT_EQ(joined({{0, 1}}, 1), (Is{-1}));
}

TEST_F(HistoryBreaks, WithoutARestartOnlyWhenNothingIsMissing) {
  rows = {forward("0/0", "forward", 10), forward("1/0", "forward", 50)};
  breaks = {broke("generic_jump", "forward", 55), broke("generic_jump", "forward", 12)};
  EXPECT_EQ(joined({{0, 1}, {1, 1}}, 2), (Is{1, 0}));
  EXPECT_EQ(joined({{0, 1}, {1, 2}}, 2), (Is{-1, -1}));  // 1/1 is under way
  EXPECT_EQ(joined({{0, 1}, {1, 1}}, 3), (Is{-1, -1}));
  breaks = {broke("generic_jump", "forward", 3)};  // before any of them begins
  EXPECT_EQ(joined({{0, 1}, {1, 1}}, 2), (Is{-1}));
}

TEST_F(HistoryBreaks, SeveralCompilesOfOneFunctionWithoutARestart) {
  rows = {forward("0/0", "f", 1), forward("0/1", "f", 1)};
  breaks = {broke("generic_jump", "f", 2), broke("generic_jump", "f", 2)};
  EXPECT_EQ(joined({{0, 2}}, 1), (Is{0, 1}));
  breaks.pop_back();
  EXPECT_EQ(joined({{0, 2}}, 1), (Is{-1}));
  breaks.push_back(broke("generic_jump", "f", 2));
  rows[1].restart_reasons = {"other"};
  rows[1].attempt = 1;  // it may have broken twice
  EXPECT_EQ(joined({{0, 2}}, 1), (Is{-1, -1}));
}

TEST_F(HistoryBreaks, WithoutAStack) {
  rows = {forward("0/0", "f", 1, {"why"})};
  breaks = {{"why", {}, std::nullopt}};
  EXPECT_EQ(joined({{0, 1}}, 1), (Is{-1}));
}

// ---- text and JSON -------------------------------------------------------------------------------

TEST(HistoryText, NamesAreNoTerminalTextAndLinesStayShort) {
  CompileHistory history;
  history.dynamo_imported = true;
  history.torch = "2.13\x1b[31m";
  std::string evil = "\x1b[2J" + std::string(300, 'x') + "\n\u202e\u20ac";
  HistoryRow row = forward("0/0", evil, 1, {evil});
  row.file = "/" + evil;
  row.trace_id = evil;
  row.recompile_reason = row.fail_type = row.fail_reason = row.cudagraph_skip_reason = evil;
  row.attempt = 3;
  row.backward_from_cache = true;
  history.rows = {row, row};
  history.graph_breaks = {broke(evil, evil, 2), {evil, {}, 0}};
  history.rows[0].graph_breaks = {1};
  history.times = {{evil, {1.0, 2.0}, 2}, {"many", std::vector<double>(2000, 0.5), 5000}};
  for (const std::string& out : {compiles_table(history), compile_times_table(history)}) {
    std::size_t begin = 0;
    for (std::size_t end; (end = out.find('\n', begin)) != std::string::npos; begin = end + 1) {
      std::string line = out.substr(begin, end - begin);
      EXPECT_LE(display_width(line), 100u) << line;
      EXPECT_EQ(escape_terminal(line), line);
    }
    EXPECT_EQ(begin, out.size());
  }
}

TEST(HistoryText, LongTextsThatRowsShareAreWrittenOnce) {
  CompileHistory history;
  std::string config(1000, 'c');
  for (int i = 0; i < 3; ++i) {
    history.rows.push_back(forward("0/" + std::to_string(i), "f", 1));
    history.rows.back().metrics.emplace_back("config", text(i < 2 ? config : config + "!"));
  }
  auto json = to_json(history);
  EXPECT_EQ(json["texts"], nlohmann::ordered_json::array({config}));
  EXPECT_EQ(json["compiles"][0]["metrics"]["config"]["text"], 0);
  EXPECT_EQ(json["compiles"][1]["metrics"]["config"]["text"], 0);
  EXPECT_EQ(json["compiles"][2]["metrics"]["config"], config + "!");
  auto small = to_json(history, false);
  EXPECT_FALSE(small.contains("texts") || small["compiles"][0].contains("metrics"));
  json["compiles"][0].erase("metrics");
  EXPECT_EQ(small["compiles"][0], json["compiles"][0]);
}

TEST(HistoryText, AnyBytesMakeValidJson) {
  CompileHistory history;
  history.rows = {forward("0/0", "\xff\xed\xb3\xbf\x01", 1)};
  history.rows[0].metrics.emplace_back("\xfe", text("\x80"));
  history.counters = {{"\xff", {{"\xff", 1}}}};
  history.times = {{"\xff", {std::numeric_limits<double>::quiet_NaN()}, 1}};
  auto again = nlohmann::json::parse(to_json(history).dump());
  EXPECT_EQ(again["compiles"].size(), 1u);
  EXPECT_TRUE(again["compiles"][0]["wall_s"].is_null());
}

}  // namespace
}  // namespace dynprof
