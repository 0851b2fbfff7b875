// Compiles that were open when the recording, or their process, ended.
#include "symbolizer/report/still_open.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "symbolizer/export/at_end_json.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1'000 * kMs;

struct StillOpenTest : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};
  ThreadId thread = fake.thread(100, 100);
  FakeEdges edges{fake, thread};
  std::optional<Attribution> attribution;
  std::optional<Analysis> analysis;

  StillOpenTest() {
    fake.edit_meta().start_ns = 3'000 * kSecond;
    fake.skip(300'000);
    EXPECT_EQ(fake.now(), fake.meta().start_ns + kSecond);
  }
  void end() { fake.edit_trailer().end_ns = fake.now(); }
  CompileProgress progress(std::uint64_t time_ns, std::uint64_t begun_ns) {
    CompileProgress row;
    row.time_ns = time_ns;
    row.begun_ns = begun_ns;
    row.thread = thread;
    row.context = edges.context();
    return row;
  }
  void add(const CompileProgress& row) { fake.edit_tables().compile_progress.push_back(row); }
  std::vector<StillOpen> found() {
    attribution.emplace(fake);
    analysis.emplace(*attribution);
    return still_open(*analysis);
  }
  std::string text() {
    const std::vector<StillOpen> all = found();
    return all.size() == 1 ? still_open_text(*analysis, all[0])
                           : "open: " + std::to_string(all.size());
  }
  // It had begun 20 minutes before, and Inductor lowers.
  void open_in_inductor() {
    edges.compile("3/0");
    for (const char* phase : {"dynamo", "entire_frame_compile", "inductor_compile"})
      edges.lose_begin(phase);
    edges.watch();
    fake.pass_ms(6'000);
    end();
    edges.unwatch();
  }
};

TEST_F(StillOpenTest, ItsTrueAgeAndPlace) {
  const std::uint64_t begun_ns = fake.now() - 1'200 * kSecond;
  open_in_inductor();
  CompileProgress row = progress(fake.now() + kMs, begun_ns);
  row.use = LineUse::kLowering;
  row.line = {fake.string("/home/me/model.py"), 88, fake.string("forward")};
  row.node = 512;
  row.nodes = 2040;
  add(row);
  EXPECT_EQ(text(),
            "3/0 for 20 min 06 s (began before the recording), in Inductor: lowering model.py:88, "
            "node 512 of 2,040");
  const Compile& compile = attribution->compiles().at(0);
  EXPECT_EQ(compile.started_ns, begun_ns);
  EXPECT_TRUE(compile.began_before);
  const nlohmann::ordered_json json = at_end_json(still_open(*analysis), 0);
  EXPECT_EQ(json["age_s"], 1206);
  EXPECT_EQ(json["activity"], "lowering");
  EXPECT_EQ(json["line"], 88);
  EXPECT_EQ(json["nodes"], 2040);
  EXPECT_EQ(json["waits_for"], nullptr);
  EXPECT_EQ(at_end_json(still_open(*analysis), 1), nullptr);
  const std::string report = render_report(*analysis, {});
  const std::size_t summary = report.find('\n') + 1;
  EXPECT_TRUE(report.substr(summary).starts_with("  Still open     3/0 for 20 min 06 s")) << report;
}

TEST_F(StillOpenTest, WhatItWaitsFor) {
  const std::uint64_t begun_ns = fake.now() - kSecond;
  open_in_inductor();
  add(progress(fake.now() + kMs, begun_ns));
  Wait wait{.begin_ns = fake.now() - 4 * kSecond, .span_ns = 4 * kSecond, .length_ns = 4 * kSecond};
  wait.thread = thread;
  wait.kind = WaitKind::kChild;
  wait.flags = kWaitAtEnd;
  fake.edit_tables().waits.push_back(wait);
  EXPECT_EQ(text(),
            "3/0 for 7.0 s (began before the recording), in Inductor; waiting for child, 4.0 s");
  for (std::int32_t pid : {200, 201}) {
    fake.edit_tables().lives.push_back({.time_ns = wait.begin_ns + kMs,
                                        .pid = pid,
                                        .kind = LifeKind::kFork,
                                        .parent_pid = 100,
                                        .parent_tid = 100,
                                        .comm = fake.string("python3")});
    fake.edit_tables().lives.push_back(
        {.time_ns = wait.begin_ns + 2 * kMs,
         .pid = pid,
         .kind = LifeKind::kExec,
         .comm = fake.string("g++"),
         .exe = fake.string("/usr/bin/g++"),
         .command_line = fake.string(std::string_view("g++\0-c\0main.cpp", 15))});
  }
  EXPECT_EQ(text(),
            "3/0 for 7.0 s (began before the recording), in Inductor; waiting for 2 g++, 4.0 s");
}

TEST_F(StillOpenTest, WithoutItsBeginItIsAtLeastSoOld) {
  open_in_inductor();
  edges.line_sample(kMs, LineUse::kTracing, edges.call("/home/me/model.py", 7, "forward"));
  EXPECT_EQ(text(),
            "3/0 for at least 6.0 s (began before the recording), in Inductor: tracing model.py:7");
}

TEST_F(StillOpenTest, OneThatBeganLaterHasTheAgeOfItsEvents) {
  edges.compile("0/0");
  edges.watch();
  fake.pass_ms(100);
  edges.begin("dynamo");
  fake.pass_ms(2'000);
  end();
  edges.phase("bytecode_tracing", 0);
  EXPECT_EQ(text(), "0/0 for 2.0 s, in Dynamo");
}

TEST_F(StillOpenTest, UntilItsProcessEnded) {
  open_in_inductor();
  fake.edit_tables().lives.push_back(
      {.time_ns = fake.now() - kMs, .pid = 100, .kind = LifeKind::kExit});
  EXPECT_TRUE(found().at(0).process_ended);
  EXPECT_NE(text().find("until its process ended"), std::string::npos) << text();
}

TEST_F(StillOpenTest, NoneThatEnded) {
  edges.forward("0/0");
  end();
  EXPECT_TRUE(found().empty());
  EXPECT_EQ(at_end_json(found(), 0), nullptr);
}

// Its thread waited all the time, and no phase was watched: the readings alone tell of it.
TEST_F(StillOpenTest, OneThatNothingElseShows) {
  edges.compile("5/1");
  edges.lose_begin("dynamo");
  const std::uint64_t begun_ns = fake.meta().start_ns - 60 * kSecond;
  add(progress(fake.meta().start_ns + kMs, begun_ns));
  fake.pass_ms(3'000);
  end();
  add(progress(fake.now() + kMs, begun_ns));
  ASSERT_EQ(found().size(), 1u);
  const Compile& compile = attribution->compiles().at(0);
  EXPECT_EQ(compile.id.text(), "5/1");
  EXPECT_EQ(compile.first_ns, fake.meta().start_ns);
  EXPECT_TRUE(compile.began_before);
  EXPECT_TRUE(compile.open_at_end);
  EXPECT_EQ(text().substr(0, 21), "5/1 for 1 min 04 s (b");
}

// What is read at the end is read a moment after it.
TEST_F(StillOpenTest, NoneThatBeganAfterTheEnd) {
  fake.pass_ms(1'000);
  end();
  edges.compile("5/1");
  edges.lose_begin("dynamo");
  add(progress(fake.now() + 2 * kMs, fake.now() + kMs));
  EXPECT_TRUE(found().empty());
  EXPECT_TRUE(attribution->compiles().empty());
}

}  // namespace
}  // namespace dynprof
