#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "symbolizer/export/perf_script.h"
#include "symbolizer/export/select.h"
#include "symbolizer/export/speedscope.h"
#include "tests/unit/fake_training.h"

namespace dynprof {
namespace {

using nlohmann::json;

class SampleFormats : public testing::Test {
 protected:
  class Text final : public ByteSink {
   public:
    void write(std::string_view bytes) override { text += bytes; }
    bool failed() const override { return false; }
    Result<void> finish() override { return {}; }
    std::string text;
  };
  std::string written(Result<void> (*write)(const Analysis&, const std::vector<CompileIndex>&,
                                            ByteSink&),
                      const Recording& recording, const char* compile = nullptr) {
    Attribution attribution(recording);
    std::vector<CompileIndex> compiles;
    if (compile) compiles = find_compiles(attribution, compile).value();
    Text sink;
    EXPECT_TRUE(write(Analysis(attribution), compiles, sink));
    return sink.text;
  }
};

TEST_F(SampleFormats, SpeedscopeWeightsAreSamplesTimesPeriod) {
  FakeTraining training;
  training.whole_run();
  json file = json::parse(written(write_speedscope, training));
  EXPECT_EQ(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
  ASSERT_EQ(file["profiles"].size(), 2u);  // the main thread and the backward's
  double total = 0;
  for (const json& profile : file["profiles"]) {
    EXPECT_EQ(profile["type"], "sampled");
    EXPECT_EQ(profile["unit"], "seconds");
    ASSERT_EQ(profile["samples"].size(), profile["weights"].size());
    double sum = 0;
    for (const json& weight : profile["weights"]) sum += weight.get<double>();
    EXPECT_NEAR(sum, profile["endValue"].get<double>(), 1e-9);
    total += sum;
    for (const json& stack : profile["samples"]) {
      for (const json& frame : stack) EXPECT_LT(frame, file["shared"]["frames"].size());
    }
  }
  EXPECT_NEAR(total, static_cast<double>(training.sample_count()) * 0.01, 1e-9);
  // Root first; five equal samples are one.
  const json& first = file["profiles"][0]["samples"][0];
  EXPECT_EQ(file["shared"]["frames"][first[0].get<int>()]["name"], "<module> train.py");
  EXPECT_EQ(file["shared"]["frames"][first.back().get<int>()]["name"], "step");
  EXPECT_EQ(file["shared"]["frames"][first.back().get<int>()]["line"], 50);
  EXPECT_DOUBLE_EQ(file["profiles"][0]["weights"][0], 0.05);
}

TEST_F(SampleFormats, SpeedscopeOfOneCompileHoldsItsSamplesOnly) {
  FakeTraining training;
  training.whole_run();
  json file = json::parse(written(write_speedscope, training, "backward 1/0"));
  ASSERT_EQ(file["profiles"].size(), 1u);
  EXPECT_DOUBLE_EQ(file["profiles"][0]["endValue"], 0.05);
}

TEST_F(SampleFormats, SpeedscopeFramesAreEachFunctionOnce) {
  FakeTraining training;
  training.whole_run();
  json file = json::parse(written(write_speedscope, training));
  std::set<std::string> seen;
  for (const json& frame : file["shared"]["frames"]) {
    EXPECT_TRUE(seen.insert(frame.dump()).second) << frame;
  }
}

TEST_F(SampleFormats, PerfScriptIsLeafFirstWithFilesAsObjects) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 107, "pt main");
  FrameId f = fake.python("/a/b.py", "C.f", 10, 12);
  fake.sample_at(
      12'345'678'901, thread,
      fake.stack({f, fake.native("memcpy", "/lib/libc.so.6", 0x1f40), fake.kernel("do")}));
  fake.sample_at(13'000'000'999, thread, fake.stack({f}), 0, kSampleTruncated);
  EXPECT_EQ(written(write_perf_script, fake),
            "pt main 100/107 12.345678: 10000000 cpu-clock:\n"
            "\t               0 do ([kernel.kallsyms])\n"
            "\t            1f40 memcpy (/lib/libc.so.6)\n"
            "\t               0 C.f (/a/b.py)\n"
            "\n"
            "pt main 100/107 13.000000: 10000000 cpu-clock:\n"
            "\t               0 C.f (/a/b.py)\n"
            "\t               0 [root side missing] ([unknown])\n"
            "\n");
}

TEST_F(SampleFormats, HostileNamesCannotAddLines) {
  HostileRecording hostile;
  std::string text = written(write_perf_script, hostile);
  std::istringstream lines(text);
  std::size_t samples = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (line[0] == '\t') {
      EXPECT_TRUE(line.ends_with(")")) << line;
    } else {
      ++samples;
      EXPECT_TRUE(line.ends_with(" cpu-clock:")) << line;
    }
    for (char c : line) EXPECT_TRUE(c == '\t' || static_cast<unsigned char>(c) >= 0x20) << line;
  }
  EXPECT_EQ(samples, hostile.sample_count());
  EXPECT_TRUE(json::accept(written(write_speedscope, hostile)));
}

}  // namespace
}  // namespace dynprof
