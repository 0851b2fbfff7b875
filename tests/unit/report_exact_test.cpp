// The report of a recording with edges and torch's history: the compile table, and a compile's page.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "symbolizer/base/text.h"
#include "symbolizer/report/report.h"
#include "symbolizer/report/sections.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

struct ReportExact : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);
  FakeEdges edges{fake, thread};

  std::string report(const ReportOptions& options = {}) {
    Attribution attribution(fake);
    const Analysis analysis(attribution);
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
  // The table's row of this compile, with runs of spaces as one.
  static std::string table_row(const std::string& text, const std::string& label) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("  " + label + ' ')) return one_line(line.substr(2));
    }
    return "(none)";
  }
  void sample_at_ms(std::uint64_t ms, StackId stack, ContextId context) {
    fake.sample_at(fake.meta().start_ns + ms * 1'000'000, thread, stack, context);
  }
  Json row(const std::string& id, std::int64_t ms, double wall_s) {
    return {{"trace_id", id},
            {"kind", "forward"},
            {"function", "Block.forward"},
            {"file", "/home/me/model.py"},
            {"line", 7},
            {"start_ns", static_cast<std::int64_t>(fake.meta().start_ns) + ms * 1'000'000},
            {"wall_s", wall_s}};
  }
  void remember(const std::string& when, std::vector<Json> rows) {
    fake.fact(100, "history", when, Json{{"compiles", std::move(rows)}}.dump());
  }
};

TEST_F(ReportExact, TheTableIsOfWall) {
  CodeId user = fake.code("/home/me/model.py", "Block.forward", 7);
  edges.forward("0/0");
  sample_at_ms(5, torch.tracing(), torch.forward(0, 0, 0, 0x1000, user));
  sample_at_ms(45, torch.lowering(), torch.forward(0, 0, 0, 0x1000, user));
  edges.backward("0/0");
  ThreadId other = fake.thread(100, 101);
  fake.sample(other, torch.running());
  fake.sample(other, torch.lowering(), torch.forward(3, 0, 0, 0x9000), 0, 2);
  fake.sample(other, torch.running());
  std::string text = report();
  EXPECT_TRUE(
      has(text, "# Compiles: 3, 0.17 s wall, 0.04 s on-CPU. Wall and its shares are exact"));
  EXPECT_EQ(table_row(text, "0/0"), "0/0 Block.forward model.py:7 0.100 0.02 30% 20% 30% 20%");
  EXPECT_EQ(table_row(text, "backward 0/0"),
            "backward 0/0 Block.forward model.py:7 0.050 - - 20% 80% -");
  EXPECT_EQ(table_row(text, "3/0"), "3/0 - ~0.02 0.02 - - 100% -");
  EXPECT_EQ(table_row(text, "all"), "all 0.170 0.04 18% 18% 53% 12%");
  EXPECT_TRUE(has(text, "# Exact times: 22 events, of 2 compiles\n"));
}

TEST_F(ReportExact, LostEdgesAreReported) {
  edges.compile("0/0");
  edges.begin("dynamo");
  edges.begin("build_guards");
  edges.lose_end();
  edges.end();
  EXPECT_TRUE(has(report(), "of 1 compile; 0 begins and 1 ends are missing"));
}

TEST_F(ReportExact, AgreementIsReported) {
  auto marker = FakeRecording::compile_marker(0, 0, 0x1000);
  fake.sample(thread, torch.tracing(),
              fake.torch_context(fake.torch_state("0/0", 0, {"dynamo"}), {marker}), 0, 3);
  EXPECT_TRUE(has(report(), "both named the compile in 3 samples: they differ in 0\n"));
}

TEST_F(ReportExact, WhyAndFromBefore) {
  edges.forward("0/1");
  Json before = row("0/0", -500, 0.2);
  before["phases"] = {{{"name", "inductor"}, {"wall_s", 0.15}},
                      {{"name", "cache"}, {"wall_s", 0.05}}};
  Json known = row("0/1", 0, 0.1);
  known["recompile_reason"] = "0/0: tensor 'x' size mismatch at index 0.\nexpected 4, actual 8";
  known["failed"] = "BackendCompilerFailed: \x1b[31mno";
  known["graph_breaks"] = {{{"reason", "print"}}, {{"reason", "print"}}};
  known["cudagraph_skip_reason"] = "skipping cudagraphs due to mutated inputs (1 instances).";
  remember("attach", {before});
  remember("detach", {before, known});
  std::string text = report();
  EXPECT_EQ(table_row(text, "0/0"), "0/0 = Block.forward model.py:7 0.200 - - - 75%+ - 25%");
  EXPECT_EQ(table_row(text, "0/1"), "0/1 Block.forward model.py:7 0.100 - 30% 20% 30% 20% -");
  EXPECT_TRUE(has(text,
                  "      recompiled: 0/0: tensor 'x' size mismatch at index 0. "
                  "expected 4, actual 8\n"))
      << text;
  EXPECT_TRUE(has(text, "      failed: BackendCompilerFailed: \\x1b[31mno\n")) << text;
  EXPECT_TRUE(has(text, "      graph break: print (2 times)\n")) << text;
  EXPECT_TRUE(
      has(text, "      no CUDA graph: skipping cudagraphs due to mutated inputs (1 instances).\n"))
      << text;
  EXPECT_TRUE(has(text, "# +: with the compilers"));
  EXPECT_TRUE(has(text, "# =: ended before the recording began"));
}

TEST_F(ReportExact, APageOfOneCompile) {
  edges.compile("0/1", 0);
  edges.begin("dynamo");
  edges.phase("compile_attempt_0", 20);
  edges.compile("0/1", 1);
  edges.begin("compile_attempt_1");
  edges.phase("async_compile.wait", 60);
  edges.end();
  edges.phase("build_guards", 20);
  edges.end();
  sample_at_ms(95, torch.guarding(), torch.forward(0, 1, 1, 0x1000));
  Json known = row("0/1", 0, 0.1);
  known["recompile_reason"] = "why " + std::string(300, 'w') + " " + std::string(90, 'y');
  known["restart_reasons"] = {"a graph break"};
  known["cudagraph_skip_reason"] = "cpu device";
  known["graph_breaks"] = {
      {{"reason", "Tensor.item"}, {"file", "/home/me/model.py"}, {"line", 12}}};
  known["cache"] = {{"fx_graph_hits", 0}, {"fx_graph_misses", 1}, {"aot_autograd_hits", 2}};
  known["backward_from_cache"] = true;
  remember("detach", {known});
  fake.fact(100, "generated",
            R"({"trace_id":"0/1","kind":"wrapper","direction":"forward","name":"w.py"})", "x");
  std::string text = report({.compiles = {1}, .tables = true});
  for (const char* part : {
           "# Compile 0/1_1: forward of Block.forward /home/me/model.py:7\n",
           "# Thread 100 of process 100; began 0.020 s after the recording; 0.080 s wall; 0.010 s "
           "on-CPU in 1\n#   sample\n",
           "# Phase             Wall s     CPU s  Share of wall\n",
           "  guards             0.020     0.010    25% #############\n",
           "  wait               0.060         -    75% ######################################\n",
           "# Attempts: 2\n  0/1            0.020 s wall, then started again\n"
           "  0/1_1          0.080 s wall (this one)\n",
           "  recompiled     why\n                 www",
           "  restarted      a graph break\n",
           "  graph break    /home/me/model.py:12: Tensor.item\n",
           "  no CUDA graph  cpu device\n",
           "  caches         FxGraph 0 hits, 1 miss; AOTAutograd 2 hits, 0 misses\n",
           "  backward       came with it from AOTAutogradCache",
           "#     Own s    Wall s   Count  Phase           Name\n"
           "      0.060     0.060       1  wait            async_compile.wait\n"
           "      0.020     0.020       1  guards          build_guards\n",
           "# Generated code, in the directory of the recording\n"
           "  wrapper        generated/0_1/w.py forward\n",
           "100.00%  python3  convert_frame.py  [p] DynamoOutput.build_guards",
           "# _compile_inner_0_1_1: compile 0/1_1\n",
       }) {
    EXPECT_TRUE(has(text, part)) << part << "\nis missing in\n" << text;
  }
}

TEST_F(ReportExact, APageOfEachThatWasAskedFor) {
  edges.forward("0/0");
  edges.backward("0/0");
  std::string text = report({.compiles = {0, 1}});
  EXPECT_TRUE(has(text, "# Compile 0/0: forward\n"));
  EXPECT_TRUE(has(text, "# Compile backward 0/0: backward\n"));
  EXPECT_TRUE(has(text, "# No samples.\n"));
}

TEST_F(ReportExact, APageWithoutEdges) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000), 0, 3);
  fake.sample(thread, torch.lowering(), torch.forward(0, 0, 0, 0x1000), 0, 1);
  std::string text = report({.compiles = {0}});
  EXPECT_TRUE(has(text, "0.040 s wall as far as seen"));
  EXPECT_TRUE(has(text, "# Phase             Wall s     CPU s  Share of CPU\n"));
  EXPECT_TRUE(has(text, "  dynamo                 -     0.030    75% ####"));
  EXPECT_FALSE(has(text, "torch's own phases"));
}

TEST_F(ReportExact, HostileTextsStayInTheirColumn) {
  const std::string nasty[] = {"new\nline", std::string("\x1b]0;t\x07"), std::string(5000, 'w'),
                               std::string(3000, ' '), "\xe2\x80\xaer"};
  std::vector<Json> rows;
  int frame = 0;
  for (const std::string& text : nasty) {
    std::string id = std::to_string(frame++) + "/0";
    edges.compile(id);
    edges.begin("dynamo");
    edges.phase(text, 1);
    edges.end();
    Json one = row(id, frame - 1, 0.001);
    for (const char* name :
         {"function", "file", "recompile_reason", "failed", "cudagraph_skip_reason"})
      one[name] = text;
    one["restart_reasons"] = std::vector<std::string>(50, text);
    one["graph_breaks"] =
        std::vector<Json>(50, Json{{"reason", text}, {"file", text}, {"line", 1}});
    rows.push_back(one);
    fake.fact(100, "generated",
              Json{{"trace_id", id},
                   {"kind", text.substr(0, 60)},
                   {"direction", text.substr(0, 60)},
                   {"name", text}}
                  .dump(),
              "x");
  }
  remember("detach", rows);
  std::string text = report();
  EXPECT_TRUE(has(text, "recompiled: new line\n"));
  EXPECT_TRUE(has(report({.compiles = {0, 1, 2, 3, 4}}), "... and 20 more"));
}

}  // namespace
}  // namespace dynprof
