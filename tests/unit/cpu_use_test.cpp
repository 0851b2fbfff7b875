// Who used the CPUs: the machine's account and the recording's, in the summary, the report and the ledger.
#include "symbolizer/report/cpu_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "symbolizer/export/compiles_json.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_edges.h"
#include "user/session/machine_cpu.h"

namespace dynprof {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class CpuUseTest : public testing::Test {
 protected:
  // A compile, and 20 samples of 10 ms of the target.
  CpuUseTest() : thread_(fake.thread(100, 100)), edges_(fake, thread_) {
    edges_.watch();
    edges_.forward("0/0");
    fake.sample(thread_, fake.stack({fake.python("/home/me/t.py", "f", 1)}), 0, 0, 20);
    fake.edit_trailer().end_ns = fake.now();
  }
  void machine(const std::string& body) {
    fake.edit_tables().facts.push_back({.kind = fake.string("machine"), .body = fake.blob(body)});
  }
  std::string report() {
    Attribution attribution(fake);
    const Analysis analysis(attribution);
    return render_report(analysis, {});
  }

  FakeRecording fake;
  ThreadId thread_;
  FakeEdges edges_;
};

TEST_F(CpuUseTest, OthersAreWhatIsLeftOfTheMachine) {
  machine(R"({"cpus": 2, "busy_ns": 700000000, "idle_ns": 300000000, "own_ns": 20000000,
             "others": [{"name": "make", "cpu_ns": 300000000}, {"name": "sh", "cpu_ns": 90000000}]})");
  const std::string text = report();
  EXPECT_THAT(text, HasSubstr("\n  Interference   other processes used 48 % of the machine's CPU "
                              "time (make 0.30 s, sh 0.09 s); idle\n                 30 %\n"));
  EXPECT_THAT(text, HasSubstr("\n# CPU time of the machine (2 CPUs): target 20.0 %, started for "
                              "compiles 0.0 %, dynprof-bpf 2.0 %,\n#   others 48.0 % (make 0.30 s, "
                              "sh 0.09 s), idle 30.0 %\n"));
  Attribution attribution(fake);
  const Json use = Json::parse(compiles_json(Analysis(attribution)))["machine"];
  EXPECT_EQ(use["busy_s"], 0.7);
  EXPECT_EQ(use["others"][0]["name"], "make");
}

TEST_F(CpuUseTest, ATenthIsNotWorthASentence) {
  machine(R"({"cpus": 2, "busy_ns": 300000000, "idle_ns": 700000000, "own_ns": 1000000,
             "others": []})");
  EXPECT_THAT(report(), Not(HasSubstr("Interference")));
  machine(R"({"cpus": 2, "busy_ns": 310000000, "idle_ns": 690000000, "own_ns": 1000000,
             "others": []})");
  EXPECT_THAT(report(), HasSubstr("Interference   other processes used 11 % of the machine's CPU "
                                  "time; idle 69 %\n"));
}

TEST_F(CpuUseTest, WithoutTheMachineThoseRecordedAreCompared) {
  fake.sample(fake.thread(500, 500, "burner"), fake.stack({fake.native("f", "/x")}), 0, 0, 20);
  const std::string text = report();
  EXPECT_THAT(text, HasSubstr("\n  Interference   other recorded processes used 50 % of the CPU "
                              "time (burner 0.20 s)\n"));
  EXPECT_THAT(text, Not(HasSubstr("CPU time of the machine")));
}

TEST_F(CpuUseTest, WhatIsNoAccountIsNone) {
  for (const char* body :
       {"", "[]", "{", R"({"busy_ns": -5, "idle_ns": "x"})", R"({"busy_ns": 0, "idle_ns": 0})"})
    machine(body);
  EXPECT_THAT(report(), Not(HasSubstr("CPU time of the machine")));
}

TEST_F(CpuUseTest, HostileNamesAndNumbers) {
  machine(R"({"cpus": 18446744073709551615, "busy_ns": 18446744073709551615,
             "idle_ns": 18446744073709551615, "own_ns": 18446744073709551615, "others": [5,
             {"name": "\u001b[31m\n\u202e", "cpu_ns": 18446744073709551615}, {"name": 3}]})");
  machine(R"({"cpus": 2, "busy_ns": 900000000, "idle_ns": 1, "others":
             [{"name": "\u001b[31m\n\u202e", "cpu_ns": 18446744073709551615}]})");
  const std::string text = report();
  EXPECT_THAT(text, HasSubstr("Interference"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("\\x1b[31m\\n"));
}

TEST(MachineCpu, AddsUpToTheTimeThatPassed) {
  MachineCpu machine;
  machine.begin();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < until) {
  }
  const Json use = Json::parse(machine.end([](pid_t) { return false; }));
  ASSERT_GE(use["cpus"].get<int>(), 1);
  // Ticks are 10 ms, and read at different moments.
  const double all =
      use["busy_ns"].get<double>() + use["idle_ns"].get<double>() + use["steal_ns"].get<double>();
  const double passed = use["wall_ns"].get<double>() * use["cpus"].get<double>();
  EXPECT_NEAR(all, passed, 0.3 * passed);
  EXPECT_GE(use["own_ns"].get<double>(), 30e6) << "this program has a part of one CPU at least";
  EXPECT_LE(use["others"].size(), MachineCpu::kMaxListed);
}

}  // namespace
}  // namespace dynprof
