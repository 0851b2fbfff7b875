#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "symbolizer/base/text.h"
#include "symbolizer/report/report.h"
#include "symbolizer/report/sections.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

struct Report : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);

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
  // The first line that holds `part`, with runs of spaces as one.
  static std::string line_with(const std::string& text, const std::string& part) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.find(part) == std::string::npos) continue;
      std::string out;
      for (char c : line) {
        if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
      }
      return out;
    }
    return "(none)";
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

TEST_F(Report, TheHeaderSaysWhatItIsAndWhatWasLost) {
  fake.edit_trailer().counters = {
      {"samples", 12}, {"ring_full", 1234}, {"frame_fault", 0}, {"of_the_future", 2}};
  fake.sample(thread, torch.running(), 0, 0, 3);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000), 0, 3);
  fake.sample(thread, torch.tracing());
  std::string text = report({.losses = true});
  EXPECT_TRUE(text.starts_with("# dynprof-bpf 0.1.0: python3 train.py (pid 100)\n")) << text;
  EXPECT_TRUE(has(text, "Python 3.11.7, torch 2.13.0+cpu; testhost, Linux 6.1.0"));
  EXPECT_TRUE(has(text,
                  "Samples: 7 of 'cpu-clock' at 100 Hz = 0.07 s on-CPU in 0.07 s; 1 thread, "
                  "1 process; interrupted"));
  EXPECT_EQ(line_with(text, "ring buffer"),
            "# 1,234 samples lost because the ring buffer was full");
  EXPECT_EQ(line_with(text, "of_the_future"), "# 2 of_the_future");
  EXPECT_FALSE(has(text, "stacks cut where"));
  EXPECT_TRUE(
      has(text, "In compiles: 4 samples, 75.00% with a trace id (1 unattributed); 3 of run"));
}

TEST_F(Report, LossesAreOneLineAtTheEnd) {
  fake.edit_trailer().counters = {{"samples", 999}, {"ring_full", 1}, {"edge_lost", 3}};
  fake.sample(thread, torch.running(), 0, 0, 992);
  fake.sample(thread, torch.running(), 0, kSampleTruncated, 4);
  fake.sample(thread, torch.running(), 0, kSampleNativeCut, 3);
  std::string text = report();
  EXPECT_TRUE(
      text.ends_with("# 99.2 % of samples complete (7 with a stack cut short, 1 lost); 1 "
                     "other kind of loss; see --losses\n"))
      << text;
  EXPECT_FALSE(has(text, "ring buffer was full"));
}

TEST_F(Report, WhatHasNoPythonIsNoLoss) {
  ThreadId compiler = fake.thread(200, 200, "cc1plus");
  fake.edit_trailer().counters = {
      {"samples", 4}, {"not_python", 2}, {"no_thread_state", 5}, {"no_frame", 1}};
  fake.sample(thread, torch.running(), 0, 0, 2);
  fake.sample(compiler, fake.stack({fake.native("parse", "/usr/lib/cc1plus")}), 0, kSampleNoPython,
              2);
  EXPECT_TRUE(report().ends_with("# 100.0 % of samples complete; see --losses\n"));
  std::string text = report({.losses = true});
  EXPECT_TRUE(has(text, "# Lost or incomplete: nothing\n# Counted, but not losses:\n")) << text;
  EXPECT_EQ(line_with(text, "no Python was found"),
            "# 2 samples in processes where no Python was found");
}

TEST_F(Report, DamageIsReported) {
  fake.set_complete(false);
  fake.add_damage("chunk 7 is damaged: 12 samples dropped");
  fake.sample(thread, torch.running());
  std::string text = report();
  EXPECT_TRUE(has(text, "no end mark"));
  EXPECT_TRUE(has(text, "Damage: chunk 7 is damaged"));
  EXPECT_TRUE(has(report({.losses = true}), "Lost or incomplete: nothing"));
}

TEST_F(Report, OneRowPerCompile) {
  CodeId user = fake.code("/home/me/model.py", "Block.forward", 7);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000, user), 0, 3);
  fake.sample(thread, torch.lowering(), torch.forward(0, 0, 0, 0x1000, user), 0, 1);
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.lowering_backward(), torch.backward_of(0, 0, 0, 0x2000));
  std::string text = report();
  EXPECT_EQ(line_with(text, "Trace id"),
            "# Trace id Function Wall s CPU s dynamo aot inductor kernel");
  EXPECT_EQ(line_with(text, "  0/0  "), "0/0 < Block.forward model.py:7 0.04 0.04 75% - 25% -");
  EXPECT_EQ(line_with(text, "  backward 0/0  "),
            "backward 0/0 > Block.forward model.py:7 0.01 0.01 - - 100% -");
  EXPECT_EQ(line_with(text, "  all"), "all 0.050 0.05 60% - 40% -");
  EXPECT_TRUE(has(text, "<: began before the recording"));
  EXPECT_TRUE(has(text, ">: was still open"));
}

TEST_F(Report, AnAttemptWithoutSamplesHasNoTimes) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 1, 0x1000));
  fake.sample(thread, torch.running());
  EXPECT_EQ(line_with(report(), "  0/0  "), "0/0 - - - - - - -");
}

TEST_F(Report, SymbolsAsPerfPrintsThem) {
  fake.sample(thread, torch.running(), 0, 0, 5);
  fake.sample(thread, fake.stack({fake.native("memcpy", "/lib/libc.so.6")}, torch.running()), 0, 0,
              3);
  fake.sample(thread, fake.stack({fake.kernel("do_syscall_64")}, torch.running()), 0, 0, 2);
  std::string text = report();
  EXPECT_EQ(line_with(text, "Overhead"), "# Overhead Command Shared Object Symbol");
  EXPECT_EQ(line_with(text, "[p]"), "50.00% python3 train.py [p] train.<locals>.step");
  EXPECT_EQ(line_with(text, "[.]"), "30.00% python3 libc.so.6 [.] memcpy");
  EXPECT_EQ(line_with(text, "[k]"), "20.00% python3 [kernel] [k] do_syscall_64");
  EXPECT_LT(text.find("[p]"), text.find("[.]"));
}

// Where a timer came late a sample stands for more of its thread's time.
TEST_F(Report, SharesAreOfTimeNotOfSamples) {
  constexpr std::uint64_t kMs = 1'000'000;
  fake.edit_meta().period_ns = 10 * kMs;
  const std::uint64_t start = fake.now();
  fake.ran(thread, start, 0);
  fake.ran(thread, start + 60 * kMs, 60 * kMs);
  fake.sample_at(start + 10 * kMs, thread, torch.running());
  fake.sample_at(start + 20 * kMs, thread, torch.running());
  fake.sample_at(start + 50 * kMs, thread, fake.stack({fake.native("memcpy", "/lib/libc.so.6")}));
  std::string text = report();
  EXPECT_EQ(line_with(text, "[p]"), "60.00% python3 train.py [p] train.<locals>.step");
  EXPECT_EQ(line_with(text, "[.]"), "40.00% python3 libc.so.6 [.] memcpy");
  EXPECT_EQ(line_with(text, "train.py:25 "),
            "60.00% 0.00% /home/me/train.py:25 train.<locals>.step");
}

TEST_F(Report, SortKeysChooseTheColumns) {
  fake.sample(thread, torch.running(), 0, 0, 6);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000), 0, 3);
  fake.sample(thread, torch.lowering(), torch.forward(0, 0, 0, 0x1000), 0, 1);
  std::string text = report({.sort = {SortKey::kPhase, SortKey::kCompile}});
  EXPECT_EQ(line_with(text, "Overhead"), "# Overhead Phase Trace id");
  EXPECT_EQ(line_with(text, "60.00%"), "60.00% runtime -");
  EXPECT_EQ(line_with(text, "30.00%"), "30.00% dynamo 0/0");
  EXPECT_EQ(line_with(text, "10.00%"), "10.00% inductor 0/0");
  EXPECT_EQ(line_with(report({.sort = {SortKey::kComm}}), "100.00%  python3"), "100.00% python3");
}

TEST_F(Report, RowsBelowTheLimitAreCounted) {
  fake.sample(thread, torch.running(), 0, 0, 999);
  fake.sample(thread, fake.stack({fake.native("rare", "/lib/x")}));
  EXPECT_TRUE(has(report(), "1 more rows, each less"));
  EXPECT_TRUE(has(report({.percent_limit = 0}), "[.] rare"));
}

TEST_F(Report, ChildrenCountsTheWholeStackOnce) {
  FrameId walk = fake.python("/home/me/w.py", "walk", 1, 2);
  fake.sample(thread, fake.stack({torch.module(), walk, walk, walk}), 0, 0, 3);
  fake.sample(thread, fake.stack({torch.module()}));
  std::string text = report({.children = true});
  EXPECT_EQ(line_with(text, "Children"), "# Children Self Command Shared Object Symbol");
  EXPECT_EQ(line_with(text, "[p] <module>"), "100.00% 25.00% python3 train.py [p] <module>");
  EXPECT_EQ(line_with(text, "[p] walk"), "75.00% 75.00% python3 w.py [p] walk");
}

TEST_F(Report, UserLinesAreTheInnermostOfUserCode) {
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000), 0, 3);
  fake.sample(thread, torch.running(), 0, 0, 1);
  fake.sample(thread, fake.stack({fake.python("/usr/lib/python3.11/json/decoder.py", "decode", 3),
                                  fake.python("<string>", "made", 1)}));
  std::string text = report();
  EXPECT_EQ(line_with(text, "train.py:25"),
            "80.00% 60.00% /home/me/train.py:25 train.<locals>.step");
  EXPECT_FALSE(has(text, "decoder.py:3 "));
}

TEST_F(Report, AnInstalledPackageCanBeUserCode) {
  fake.sample(thread,
              fake.stack({fake.python("/v/site-packages/transformers/bert.py", "Bert.run", 3),
                          fake.python("/v/site-packages/other/x.py", "x", 1)},
                         torch.running()));
  EXPECT_EQ(line_with(report(), "train.py:25 "),
            "100.00% 0.00% /home/me/train.py:25 train.<locals>.step");
  const std::string text = report({.user_packages = {"transformers"}});
  EXPECT_EQ(line_with(text, "transformers/bert.py:3"),
            "100.00% 0.00% …ite-packages/transformers/bert.py:3 Bert.run");
}

TEST_F(Report, CompilesAndPhasesCanBeChosen) {
  fake.sample(thread, torch.running(), 0, 0, 5);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000), 0, 3);
  fake.sample(thread, torch.lowering(), torch.forward(0, 0, 0, 0x1000), 0, 1);
  fake.sample(thread, torch.tracing(), torch.forward(1, 0, 0, 0x1000), 0, 7);
  std::string text = report({.compiles = {0}, .phases = {Phase::kInductor}});
  EXPECT_TRUE(has(text, "Only compiles [0/0], phases inductor: 1 sample"));
  EXPECT_EQ(line_with(text, "[p]"), "100.00% python3 compile_fx.py [p] compile_fx_inner");
  EXPECT_FALSE(has(text, "\n  1/0 "));
  EXPECT_TRUE(has(report({.phases = {Phase::kCudagraphs}}), "# No samples."));
}

TEST_F(Report, TablesAsPstatsPrintsThem) {
  fake.sample(thread, torch.running());
  fake.sample(thread, torch.before_attempt(), torch.forward(0, 0, 0, 0x1000), 0, 1);
  fake.sample(thread, torch.tracing(), torch.forward(0, 0, 0, 0x1000), 0, 3);
  EXPECT_FALSE(has(report(), "Ordered by"));
  std::string text = report({.tables = true});
  EXPECT_TRUE(has(text, "# _compile_inner_0_0: compile 0/0\n"));
  EXPECT_TRUE(has(text, "         7 function calls (4 primitive calls) in 0.040 seconds\n"));
  EXPECT_TRUE(has(text, "   Ordered by: internal time\n"));
  EXPECT_TRUE(has(text, "   Ordered by: cumulative time\n"));
  EXPECT_TRUE(
      has(text, "   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n"));
  EXPECT_TRUE(has(line_with(text, "(_compile)"), "4/1 0.010 0.003 0.040 0.040 "));
  EXPECT_TRUE(has(line_with(text, "(compile_frame)"), "3 0.030 0.010 0.030 0.010 "));
}

TEST_F(Report, LongTablesAreCutTo20Rows) {
  for (int i = 0; i < 30; ++i) {
    fake.sample(thread,
                fake.stack({fake.python("f.py", "f" + std::to_string(i), i + 1)}, torch.tracing()),
                torch.forward(0, 0, 0, 0x1000));
  }
  EXPECT_TRUE(has(report({.tables = true}), "List reduced from 32 to 20 due to restriction <20>"));
}

TEST_F(Report, ManyCompilesShowTheHeaviest) {
  for (int i = 0; i < 70; ++i) {
    fake.sample(thread, torch.tracing(), torch.forward(i, 0, 0, 0x1000), 0, i == 3 ? 9 : 1);
  }
  std::string text = report();
  EXPECT_TRUE(has(text, "20 compiles with fewer samples are left out"));
  EXPECT_TRUE(has(text, "\n  3/0 "));
  EXPECT_FALSE(has(text, "\n  69/0 "));
}

TEST_F(Report, NothingToReport) {
  std::string text = report();
  EXPECT_TRUE(has(text, "No torch.compile activity was seen."));
  EXPECT_TRUE(has(text, "No samples."));
}

TEST_F(Report, HostileNamesStayInTheirColumn) {
  const std::string nasty[] = {"new\nline",
                               "\x1b]0;title\x07",
                               "\r\b",
                               std::string(10000, 'w'),
                               "\xed\xb2\x80",
                               "\xff\xfe",
                               "",
                               "\xe2\x80\xaer",
                               std::string(5000, '\x1b'),
                               std::string("\0nul", 4)};
  fake.edit_meta().command = std::string(3000, '\x1b') + "\n";
  fake.edit_meta().host = std::string(300, 'h');
  fake.edit_meta().torch = std::string(300, 't');
  fake.edit_trailer().reason = "\x1b[2J";
  fake.add_damage(std::string(500, 'd'));
  for (const std::string& name : nasty) {
    ThreadId named = fake.thread(100, 200, name);
    CodeId user = fake.code("/home/" + name, name, 5);
    fake.sample(named, fake.stack({fake.python(user), torch.compile()}),
                torch.forward(0, 0, 0, 0x1000, user), 0, 3);
    fake.sample(named, fake.stack({fake.native(name, "/lib/" + name)}), 0, 0, 2);
    fake.sample(named, torch.running());
  }
  std::string text = report({.children = true, .tables = true});
  EXPECT_TRUE(has(text, "new\\nline"));
  report({.sort = {SortKey::kCompile, SortKey::kPhase, SortKey::kComm, SortKey::kDso,
                   SortKey::kSymbol}});
}

}  // namespace
}  // namespace dynprof
