// What `top` makes of readings: shares of a CPU, what stands still, and for what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/top_example.h"
#include "user/top/cpu_budget.h"
#include "user/top/finished_rows.h"
#include "user/top/model.h"
#include "user/top/processes.h"
#include "user/top/wait_rules.h"

namespace dynprof {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;

TEST(TopModel, SharesOfACpuNeedTwoReadings) {
  TopModel model;
  TopReading first = example_reading(100);
  model.add(first);
  EXPECT_FALSE(model.state().cpu_percent || model.state().own_cpu_percent);
  EXPECT_FALSE(model.state().processes[0].cpu_percent);
  TopReading second = example_reading(102);
  second.target.cpu_s = first.target.cpu_s + 3;
  second.processes[0].cpu_s = first.processes[0].cpu_s + 1;
  second.own = {first.own.cpu_s + 0.01, first.own.reads + 50};
  model.add(second);
  EXPECT_DOUBLE_EQ(*model.state().cpu_percent, 150);
  EXPECT_DOUBLE_EQ(*model.state().processes[0].cpu_percent, 50);
  EXPECT_NEAR(*model.state().own_cpu_percent, 0.5, 1e-9);
  EXPECT_DOUBLE_EQ(*model.state().reads_per_s, 25);
  EXPECT_DOUBLE_EQ(model.state().children_cpu_percent, 50);
  EXPECT_EQ(model.state().children_rss_bytes, 100'000'000u);
}

TEST(TopModel, APidThatIsUsedAgainIsAnotherProcess) {
  TopModel model;
  model.add(example_reading(100));
  TopReading second = example_reading(101);
  second.processes[0].start_ticks += 1;
  model.add(second);
  EXPECT_FALSE(model.state().processes[0].cpu_percent);
  EXPECT_TRUE(model.state().processes[1].cpu_percent);
}

TEST(TopModel, ACompileThatDoesNotAdvanceIsReported) {
  TopModel model;
  model.add(example_reading(100));
  model.add(example_reading(129));
  EXPECT_TRUE(model.state().stalls.empty());
  EXPECT_DOUBLE_EQ(model.state().open[0].still_s, 29);
  model.add(example_reading(145));
  EXPECT_THAT(
      model.state().stalls,
      ElementsAre("0/1 (step train.py:40) has not advanced for 45.0 s: inductor, lowering forward "
                  "model.py:17, node 12 of 310; thread 100 \"MainThread\" is running.",
                  "thread 101 \"second\" has waited for the compile lock, held by thread 100 for "
                  "0/1 for 45.0 s."));
}

TEST(TopModel, EachStepForwardCounts) {
  auto still_after = [](auto&& change) {
    TopModel model;
    model.add(example_reading(100));
    TopReading reading = example_reading(140);
    change(reading.open[0]);
    model.add(reading);
    return model.state().open[0].still_s;
  };
  EXPECT_EQ(still_after([](OpenCompile&) {}), 40);
  EXPECT_EQ(still_after([](OpenCompile& c) { c.node = 13; }), 0);
  EXPECT_EQ(still_after([](OpenCompile& c) { c.at->line = 18; }), 0);
  EXPECT_EQ(still_after([](OpenCompile& c) { c.attempt = 1; }), 0);
  EXPECT_EQ(still_after([](OpenCompile& c) { c.torch_phases.pop_back(); }), 0);
  EXPECT_EQ(still_after([](OpenCompile& c) { c.id = "0/2"; }), 0);
  EXPECT_EQ(still_after([](OpenCompile& c) { c.tid = 102; }), 0);
  // What moved while it was read says nothing of its line, but its phase is the same.
  EXPECT_EQ(still_after([](OpenCompile& c) {
              c.moved = true;
              c.at.reset();
              c.node = 0;
            }),
            40);
}

TEST(TopModel, WhatMovedOnceIsComparedWithTheReadingBefore) {
  TopModel model;
  model.add(example_reading(100));
  TopReading moved = example_reading(120);
  moved.open[0].moved = true;
  moved.open[0].at.reset();
  model.add(moved);
  TopReading later = example_reading(140);
  later.open[0].at->line = 18;
  model.add(later);
  EXPECT_EQ(model.state().open[0].still_s, 0);
}

TEST(TopModel, AReadingThatWasNotMadeChangesNothing) {
  TopModel model;
  model.add(example_reading(100));
  TopReading old = example_reading(150);
  old.details_time_s = 100;
  model.add(old);
  EXPECT_TRUE(model.state().stalls.empty());
  EXPECT_EQ(model.state().open.size(), 2u);
  EXPECT_EQ(model.state().processes.size(), 2u);
}

TEST(TopModel, SaysWhatACompileWaitsFor) {
  auto waits = [](TopWait wait, std::vector<TopProcess> processes) {
    TopModel model;
    TopReading reading = example_reading(100);
    reading.open[0].wait = wait;
    reading.open[0].wait_text = "a future";
    reading.processes = std::move(processes);
    model.add(reading);
    return model.state().open[0].waits;
  };
  EXPECT_EQ(waits(TopWait::kNone, {}), "");
  EXPECT_EQ(waits(TopWait::kOther, {}), "a future");
  EXPECT_EQ(waits(TopWait::kChild, {}), "a child process");
  EXPECT_EQ(waits(TopWait::kChild, {compiler(77, 100, 100), compiler(78, 77, 77)}),
            "g++ main.cpp (pid 77)");
  EXPECT_EQ(waits(TopWait::kChild, {compiler(77, 100, 100), compiler(79, 100, 100)}),
            "g++ main.cpp (pid 77) and 1 more");
  EXPECT_EQ(waits(TopWait::kCompilePool, {}), "the compile pool");
  EXPECT_EQ(waits(TopWait::kCompilePool, {compiler(77, 100, 105), compiler(78, 77, 77)}),
            "the compile pool: g++ main.cpp (pid 77)");
  TopProcess worker = compiler(80, 100, 100, "compile_worker");
  worker.purpose = "compile worker";
  TopProcess idle = worker;
  idle.pid = 81;
  idle.state = 'S';
  EXPECT_EQ(waits(TopWait::kCompilePool, {worker, idle}),
            "the compile pool: 1 of 2 workers running");
  EXPECT_EQ(waits(TopWait::kCompileLock, {}), "the compile lock");
  TopModel model;
  model.add(example_reading(100));
  EXPECT_EQ(model.state().open[1].waits, "the compile lock, held by thread 100 for 0/1");
}

TEST(TopModel, CompilersBelongToTheCompileThatIsOpen) {
  TopModel model;
  TopReading reading = example_reading(100);
  reading.processes = {compiler(77, 100, 105), compiler(78, 100, 100)};
  model.add(reading);
  EXPECT_EQ(model.state().processes[0].compile, "0/1");  // the only one
  EXPECT_EQ(model.state().processes[1].compile, "0/1");  // its thread
  reading = example_reading(101);
  reading.processes = {compiler(77, 100, 105), compiler(78, 100, 100)};
  reading.open[1].id = "1/0";
  reading.open[1].wait = TopWait::kNone;
  model.add(reading);
  EXPECT_EQ(model.state().processes[0].compile, "");
  EXPECT_EQ(model.state().processes[1].compile, "0/1");
}

TEST(TopWaits, TheMostSpecificFrameNearTheLeafCounts) {
  const WaitFrame wait{"Condition.wait", "/usr/lib/python3.11/threading.py"};
  const WaitFrame future{"Future.result", "/usr/lib/python3.11/concurrent/futures/_base.py"};
  const WaitFrame pool{"AsyncCompile._wait_futures",
                       "/v/site-packages/torch/_inductor/async_compile.py"};
  const WaitFrame other{"main", "/home/me/train.py"};
  EXPECT_EQ(wait_of_frames({}).wait, TopWait::kNone);
  EXPECT_EQ(wait_of_frames(std::vector{other}).wait, TopWait::kNone);
  EXPECT_EQ(wait_of_frames(std::vector{wait, other}).text, "another thread (threading)");
  EXPECT_EQ(wait_of_frames(std::vector{wait, future, other}).text, "a future");
  EXPECT_EQ(wait_of_frames(std::vector{wait, future, pool}).wait, TopWait::kCompilePool);
  std::vector<WaitFrame> deep(12, other);
  deep.push_back(pool);
  EXPECT_EQ(wait_of_frames(deep).wait, TopWait::kNone) << "far from the leaf";
  const WaitFrame popen{"Popen._try_wait", "/usr/lib/python3.11/subprocess.py"};
  EXPECT_EQ(wait_of_frames(std::vector{popen, pool}).wait, TopWait::kChild);
}

TEST(TopWaits, SystemCallsInWords) {
  EXPECT_EQ(wait_of_system_call("running\n", ""), "");
  EXPECT_EQ(wait_of_system_call("", ""), "");
  EXPECT_EQ(wait_of_system_call("-1 0x7f 0x7f\n", ""), "");
  EXPECT_EQ(wait_of_system_call("99999999999999999999 0x1", ""), "");
#if defined(__x86_64__)
  EXPECT_EQ(wait_of_system_call("202 0x7f12 0x80 0x0\n", ""), "a lock or a condition");
  EXPECT_EQ(descriptor_of_system_call("0 0x3 0x7f 0x10 0x0\n"), 3);
  EXPECT_EQ(descriptor_of_system_call("0 0xffffffffffffffff 0x7f\n"), -1);
  EXPECT_EQ(descriptor_of_system_call("202 0x3\n"), -1);
  EXPECT_EQ(wait_of_system_call("0 0x0 0x7f 0x10\n", "pipe:[123]"), "data from a pipe");
  EXPECT_EQ(wait_of_system_call("0 0x0 0x7f 0x10\n", "/dev/pts/3"), "data from a terminal");
  EXPECT_EQ(wait_of_system_call("1 0x0 0x7f 0x10\n", "socket:[9]"), "room in a socket");
  EXPECT_EQ(wait_of_system_call("61 0x1\n", ""), "a child process");
#endif
}

TEST(TopProcesses, ReadsTheFieldsOfStat) {
  auto times = parse_process_times(
      "4242 (a) b (c) S 17 4242 4242 0 -1 4194304 1 2 3 4 250 150 5 6 20 0 12 0 987654 1000000 300 "
      "18446744073709551615 1 2\n");
  ASSERT_TRUE(times);
  EXPECT_EQ(times->comm, "a) b (c");
  EXPECT_EQ(times->state, 'S');
  EXPECT_EQ(times->parent, 17);
  EXPECT_EQ(times->threads, 12u);
  EXPECT_EQ(times->start_ticks, 987654u);
  EXPECT_DOUBLE_EQ(times->cpu_s, 400.0 / static_cast<double>(sysconf(_SC_CLK_TCK)));
  EXPECT_EQ(times->rss_bytes, 300u * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
}

TEST(TopProcesses, RejectsMalformedStat) {
  for (const char* text :
       {"", "1", "1 (x", "1 (x) S", ") 1 (", "1 (x) S a b c d e f g h i j k l m n o p q r s t u"})
    EXPECT_FALSE(parse_process_times(text)) << text;
}

TEST(TopProcesses, SaysWhatAProcessIsFor) {
  using namespace std::string_literals;
  EXPECT_EQ(process_purpose("g++\0-c\0main.cpp"s, "g++"), "compiler");
  EXPECT_EQ(process_purpose("/usr/bin/x86_64-linux-gnu-g++-12\0main.cpp"s, "x86_64-linux-gn"),
            "compiler");
  EXPECT_EQ(process_purpose("/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus\0-quiet"s, "cc1plus"),
            "compiler");
  EXPECT_EQ(process_purpose("clang++-16\0x.cpp"s, "clang++-16"), "compiler");
  EXPECT_EQ(process_purpose("python3.11\0train.py"s, "pt_data_worker"), "DataLoader worker");
  EXPECT_EQ(process_purpose("python3\0x.py"s, "python3"), "Python");
  EXPECT_EQ(process_purpose("/bin/sleep\0001"s, "sleep"), "");
  EXPECT_EQ(process_purpose("", ""), "");
  EXPECT_EQ(process_purpose(
                "/v/bin/python\0/v/lib/python3.11/site-packages/torch/_inductor/compile_worker/"
                "__main__.py\0--parent=4242"s,
                "python"),
            "compile worker");
}

TEST(TopFinished, ItemsThatFellOutOfTheDeque) {
  EXPECT_EQ(items_gone({}, {1, 2}), 0u);
  EXPECT_EQ(items_gone({1, 2}, {1, 2}), 0u);
  EXPECT_EQ(items_gone({1, 2}, {1, 2, 3}), 0u);
  EXPECT_EQ(items_gone({1, 2, 3}, {2, 3, 4}), 1u);
  EXPECT_EQ(items_gone({1, 2, 3}, {4, 5, 6}), 3u);
  EXPECT_EQ(items_gone({1, 2, 3}, {}), 3u);
  EXPECT_EQ(items_gone({1, 2, 3}, {3, 1, 2}), 2u);  // an address that is used again
}

TEST(TopFinished, ShowsARow) {
  HistoryRow row;
  row.trace_id = "0/1";
  row.kind = CompileKind::kBackward;
  row.attempt = 2;
  row.function = "step";
  row.file = "/a/train.py";
  row.line = 40;
  row.start_us = 1'000'000;
  row.duration_us = 500'000;
  row.phases = {{Phase::kDynamo, "a", 0.1, 0.1},
                {Phase::kInductor, "b", 0.3, 0.2},
                {Phase::kDynamo, "c", 0.2, 0.2}};
  row.fail_type = "Unsupported";
  const FinishedCompile shown = finished_compile(row);
  EXPECT_EQ(shown.id, "backward 0/1 #2");
  EXPECT_EQ(shown.end_us, 1'500'000);
  EXPECT_DOUBLE_EQ(shown.wall_s, 0.5);
  ASSERT_EQ(shown.phases.size(), 2u);
  EXPECT_EQ(shown.phases[0].first, Phase::kDynamo);
  EXPECT_DOUBLE_EQ(shown.phases[0].second, 0.1 + 0.2);
  EXPECT_THAT(shown.failure, HasSubstr("Unsupported"));
}

TEST(TopBudget, ReadingCostsOnePercentOfACoreInTheLongRun) {
  CpuBudget budget;
  double spent = 0, now = 1000;
  int reads = 0;
  for (; now < 1600; now += 1) {
    if (!budget.may_read(now)) continue;
    budget.spend(0.05);
    spent += 0.05;
    ++reads;
  }
  EXPECT_LE(spent, CpuBudget::kShare * 600 + CpuBudget::kMostSaved + 0.05);
  EXPECT_GE(reads, 100);
  CpuBudget cheap;
  reads = 0;
  for (now = 1000; now < 1600; now += 1) {
    if (!cheap.may_read(now)) continue;
    cheap.spend(0.005);
    ++reads;
  }
  EXPECT_EQ(reads, 600);
}

}  // namespace
}  // namespace dynprof
