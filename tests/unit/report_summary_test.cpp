// The lines at the top of the report, and what else it says of a whole recording.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "symbolizer/attribution/phase_groups.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/report.h"
#include "symbolizer/report/sections.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMs = 1'000'000;

struct ReportSummary : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);
  FakeEdges edges{fake, thread};

  std::string report(const ReportOptions& options = {}) {
    Attribution attribution(fake);
    Analysis analysis(attribution);
    std::string text = render_report(analysis, options);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(display_width(line), kReportColumns) << line;
      EXPECT_EQ(escape_terminal(line), line);
    }
    return text;
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  // The lines above the first "#" that stands alone, the title among them.
  static std::vector<std::string> summary(const std::string& text) {
    std::vector<std::string> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line) && line != "#";) found.push_back(line);
    return found;
  }
  // What the summary says under this title, its lines as one.
  static std::string said(const std::string& text, const std::string& title) {
    std::string all;
    bool inside = false;
    for (const std::string& line : summary(text)) {
      const bool begins = line.starts_with("  ") && line[2] != ' ';
      if (begins) inside = line.substr(2).starts_with(title);
      if (inside) all += (all.empty() ? "" : " ") + one_line(line.substr(begins ? 17 : 0));
    }
    return one_line(all);
  }
  Json row(const std::string& id, std::int64_t ms, double wall_s) {
    return {{"trace_id", id},
            {"kind", "forward"},
            {"function", "forward"},
            {"file", "/home/me/model.py"},
            {"line", 7},
            {"start_ns", static_cast<std::int64_t>(fake.meta().start_ns) + ms * 1'000'000},
            {"wall_s", wall_s}};
  }
  void remember(const std::string& when, std::vector<Json> rows) {
    fake.fact(100, "history", when, Json{{"compiles", std::move(rows)}}.dump());
  }
  void end_after_ms(std::uint64_t ms) {
    fake.edit_trailer().end_ns = fake.meta().start_ns + ms * kMs;
  }
};

TEST_F(ReportSummary, WhereCompileTimeWent) {
  edges.forward("0/0");
  edges.backward("0/0");
  fake.pass_ms(50);
  end_after_ms(200);
  std::string text = report();
  EXPECT_EQ(said(text, "Compiling"), "0.15 s of the 0.20 s recorded (75 %): 2 compiles");
  EXPECT_EQ(said(text, "Spent on"),
            "Inductor 47 %, Dynamo 20 %, AOTAutograd 20 %, C++/Triton compilers 13 %");
  EXPECT_EQ(said(text, "Longest"), "0/0 0.10 s, backward 0/0 0.05 s");
  EXPECT_EQ(said(text, "Recompiled"), "");
  EXPECT_EQ(said(text, "Caches"), "");
  EXPECT_FALSE(has(text, "Suggestion"));
}

// Samples tell the whole name of a function; of a compile that has none torch's history tells the last part of it.
TEST_F(ReportSummary, AFunctionWithTwoNamesIsOne) {
  edges.compile("0/0");
  edges.begin("entire_frame_compile");
  fake.sample(thread, torch.tracing(),
              edges.context({FakeRecording::compile_marker(
                  0, 0, 500, fake.code("/home/me/model.py", "Model.forward", 7))}));
  edges.end();
  edges.forward("0/1");
  remember("detach", {row("0/0", 0, 0.01), row("0/1", 10, 0.1)});
  end_after_ms(1000);
  const std::string text = report();
  EXPECT_TRUE(has(text, "Model.forward model.py:7")) << text;
  EXPECT_TRUE(said(text, "Compiling").ends_with("2 compiles of 1 function")) << text;
}

TEST_F(ReportSummary, RecompilesByFunctionWithTheirCauseAndWhatToDo) {
  for (int i = 0; i < 4; ++i) edges.forward("0/" + std::to_string(i));
  std::vector<Json> rows;
  for (int i = 0; i < 4; ++i) {
    rows.push_back(row("0/" + std::to_string(i), 100 * i, 0.1));
    if (i == 0) continue;
    rows.back()["recompile_reason"] =
        "0/" + std::to_string(i - 1) + ": tensor 'x' size mismatch at index 1. expected " +
        std::to_string(i) + ", actual " + std::to_string(i + 1) + "\n0/0: of another entry";
  }
  remember("detach", rows);
  end_after_ms(1000);
  std::string text = report();
  EXPECT_EQ(said(text, "Recompiled"),
            "forward model.py:7 3 times, 0.30 s; last: 0/2: tensor 'x' size mismatch at index 1. "
            "expected 3, actual 4 0/0: of another entry");
  EXPECT_EQ(said(text, "Suggestion"),
            "mark_dynamic(x, 1) or dynamic=True (model.py:7 recompiled 3 times, 0.30 s)");
}

TEST_F(ReportSummary, TheRecompileLimit) {
  edges.forward("0/0");
  Json refused = row("0/8", 500, 0.001);
  refused["recompile_reason"] = "0/7: len(xs) == 8";
  refused["failed"] = "Unsupported: Dynamo recompile limit exceeded\n  Explanation: ...";
  Json raised = row("1/8", 600, 0.001);
  raised["function"] = "other";
  raised["failed"] = "FailOnRecompileLimitHit: Hard failure due to fullgraph=True";
  remember("detach", {row("0/0", 0, 0.1), refused, raised});
  end_after_ms(1000);
  std::string text = report();
  EXPECT_TRUE(has(text, "forward model.py:7; limit reached, now eager; 0/7: len(xs) == 8\n"))
      << text;
  EXPECT_TRUE(has(text, "other model.py:7; limit reached, now an error\n"));
  EXPECT_EQ(said(text, "Failed"), "");
  EXPECT_TRUE(has(said(text, "Suggestion"),
                  "torch._dynamo.config.recompile_limit (model.py:7 hit torch's limit, and 1 more "
                  "function)"))
      << text;
}

TEST_F(ReportSummary, GraphBreaksWithTheirLinesAndIntendedOnesApart) {
  edges.forward("0/0");
  Json known = row("0/0", 0, 0.1);
  Json at{{"reason", "Data-dependent branching\n  Explanation: it branches\n  Hint: do not"},
          {"file", "/home/me/model.py"},
          {"line", 12}};
  Json ddp{{"reason", "DDPOptimizer intentional graph-break (See Note [DDPOptimizer])."},
           {"file", "/torch/_dynamo/backends/distributed.py"},
           {"line", 0}};
  known["graph_breaks"] = {at, at, ddp, ddp, ddp};
  remember("detach", {known});
  std::string text = report();
  EXPECT_EQ(said(text, "Graph breaks"),
            "2 at model.py:12: Data-dependent branching: it branches (2 times); 3 splits that "
            "DDPOptimizer intends");
  EXPECT_EQ(said(text, "Suggestion"),
            "torch.where or torch.cond instead of a branch on a tensor's value (2 graph breaks at "
            "model.py:12)");
}

TEST_F(ReportSummary, CachesAndACompileThatCameFromThem) {
  edges.forward("0/0");
  Json known = row("0/0", 0, 0.1);
  known["cache"] = {{"fx_graph_hits", 2}, {"aot_autograd_hits", 1}};
  remember("detach", {known});
  std::string text = report();
  EXPECT_EQ(said(text, "Caches"),
            "FxGraphCache 2 hits, 0 misses; AOTAutogradCache 1 hit, 0 misses");
  EXPECT_EQ(said(text, "Spent on"), "caches 50 %, Dynamo 30 %, C++/Triton compilers 20 %");
}

TEST_F(ReportSummary, HasTwelveLinesAtMostAndTheRestBelowTheTable) {
  std::vector<Json> rows;
  for (int i = 0; i < 12; ++i) {
    const std::string id = std::to_string(i) + "/1";
    edges.forward(id);
    Json one = row(id, 100 * i, 0.1);
    one["function"] = "function_" + std::to_string(i);
    one["recompile_reason"] = "rank mismatch " + std::string(300, 'r') + " " + std::string(80, 's');
    one["graph_breaks"] = {{{"reason", "generic_jump " + std::string(200, 'g')},
                            {"file", "/home/me/model.py"},
                            {"line", i + 1}}};
    if (i > 8) one["failed"] = "BackendCompilerFailed: " + std::string(400, 'f');
    one["cache"] = {{"fx_graph_misses", 1}};
    rows.push_back(one);
  }
  remember("detach", rows);
  end_after_ms(2000);
  std::string text = report();
  EXPECT_LE(summary(text).size(), 12u) << text;
  EXPECT_GE(summary(text).size(), 10u) << text;
  EXPECT_TRUE(has(said(text, "Suggestion"), "number of dimensions")) << "never left out";
  const std::size_t table = text.find("# Trace id"), details = text.find("# In full: ");
  ASSERT_NE(details, std::string::npos);
  EXPECT_LT(table, details);
  EXPECT_NE(text.find("function_11 model.py:7 once", details), std::string::npos);
}

TEST_F(ReportSummary, WallTimeIsThatOfTheRecording) {
  edges.forward("0/0");
  remember("attach", {});
  remember("detach", {row("0/0", 0, 0.1), row("1/0", -800, 0.9), row("2/0", -900, 0.2)});
  end_after_ms(100);
  Attribution attribution(fake);
  ASSERT_EQ(attribution.compiles().size(), 3u);
  for (CompileIndex i = 0; i < 3; ++i) {
    const Compile& compile = attribution.compiles()[i];
    if (compile.id != parse_trace_id("1/0")) continue;
    EXPECT_EQ(compile.wall_ns(fake.meta().period_ns), 100 * kMs);
    EXPECT_TRUE(compile.began_before);
    EXPECT_EQ(fake.meta().start_ns - compile.started_ns, 800 * kMs);
    EXPECT_TRUE(has(report({.compiles = {i}}), "It had begun 0.800 s before the recording did"));
  }
  std::string text = report();
  EXPECT_TRUE(said(text, "Compiling").starts_with("0.10 s of the 0.10 s recorded (100 %): 2 comp"))
      << said(text, "Compiling");
  EXPECT_TRUE(said(text, "Compiling").ends_with("1 more ended before it began (0.20 s)"));
}

TEST_F(ReportSummary, ACompilerIsNoRunTimeAndNoOtherProcess) {
  ThreadId compiler = fake.thread(200, 200, "cc1plus");
  ThreadId loader = fake.thread(300, 300, "");
  const std::uint64_t begin = fake.now();
  edges.watch();
  edges.forward("0/0");
  auto& lives = fake.edit_tables().lives;
  lives.push_back({.time_ns = begin, .pid = 100, .kind = LifeKind::kThere});
  lives.push_back({.time_ns = begin + 40 * kMs, .pid = 200, .parent_pid = 100, .parent_tid = 100});
  lives.push_back({.time_ns = begin + 90 * kMs, .pid = 200, .kind = LifeKind::kExit, .cpu_ns = 1});
  const StackId parse = fake.stack({fake.native("parse", "/usr/lib/cc1plus")});
  for (int i = 0; i < 5; ++i) fake.sample_at(begin + (45 + i) * kMs, compiler, parse, 0, 8);
  const StackId load = fake.stack({fake.native("read", "/lib/libc.so.6")});
  for (int i = 0; i < 3; ++i) fake.sample_at(begin + (150 + i) * kMs, loader, load, 0, 8);
  fake.sample_at(begin + 160 * kMs, thread, torch.running());
  std::string all = report();
  EXPECT_TRUE(has(all, "cc1plus"));
  EXPECT_TRUE(has(all, "  [pid 300]  libc.so.6 ")) << all;
  EXPECT_TRUE(has(all, "; 5 of processes started for compiles; 4\n#   of run time")) << all;
  EXPECT_EQ(said(all, "Interference"),
            "other recorded processes used 33 % of the CPU time ([pid 300] 0.03 s)");
  std::string runtime = report({.phases = {Phase::kRuntime}});
  EXPECT_FALSE(has(runtime, "cc1plus  ")) << runtime;
  EXPECT_TRUE(has(runtime, "train.<locals>.step"));
  EXPECT_TRUE(has(report({.phases = {Phase::kKernelCompile}}), "[.] parse"));
}

TEST_F(ReportSummary, SeveralProcessesHaveAColumnOfPids) {
  ThreadId other = fake.thread(4321, 4321);
  FakeEdges theirs(fake, other);
  edges.forward("0/0");
  theirs.backward("10/100", 12);
  std::string text = report();
  EXPECT_TRUE(has(text, "\n#  Pid Trace id")) << text;
  EXPECT_TRUE(has(text, "\n   100 0/0 ")) << text;
  EXPECT_TRUE(has(text, "\n  4321 backward 10/100_12 ")) << text;
  EXPECT_TRUE(has(said(text, "Compiling"), "2 compiles in 2 processes"));
}

TEST_F(ReportSummary, NothingToSay) {
  EXPECT_EQ(said(report(), "Compiling"), "no torch.compile activity was seen");
  fake.sample(thread, torch.running());
  std::string text = report();
  EXPECT_EQ(said(text, "Compiling"), "no torch.compile activity was seen in the 0.01 s recorded");
  EXPECT_EQ(summary(text).size(), 2u);
}

TEST(PhaseGroups, EachPhaseIsInOneAndWhatACacheAnsweredIsTheCaches) {
  GroupTimes times;
  for (std::size_t i = 0; i < static_cast<std::size_t>(Phase::kCount); ++i)
    times.add(static_cast<Phase>(i), 1);
  EXPECT_EQ(times.whole(), static_cast<std::uint64_t>(Phase::kCount));
  GroupTimes graph = times, all = times;
  graph.answer_from(CacheAnswer::kFxGraph);
  EXPECT_EQ(graph.of(PhaseGroup::kInductor), 0u);
  EXPECT_EQ(graph.of(PhaseGroup::kAot), times.of(PhaseGroup::kAot));
  all.answer_from(CacheAnswer::kAotAutograd);
  EXPECT_EQ(all.of(PhaseGroup::kAot), 0u);
  EXPECT_EQ(all.whole(), times.whole());
  EXPECT_EQ(cache_answer(2, 0, 1, 0), CacheAnswer::kAotAutograd);
  EXPECT_EQ(cache_answer(1, 0, 0, 1), CacheAnswer::kFxGraph);
  EXPECT_EQ(cache_answer(1, 1, 1, 0), CacheAnswer::kNone);
  EXPECT_EQ(cache_answer(0, 0, 0, 1), CacheAnswer::kNone);
  times.join_kernel();
  EXPECT_EQ(times.of(PhaseGroup::kKernel), 0u);
  EXPECT_EQ(times.of(PhaseGroup::kInductor), 3u);
  EXPECT_TRUE(times.kernel_in_inductor);
}

}  // namespace
}  // namespace dynprof
