// A chrome trace of a part of a recording (--from, --to).
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "symbolizer/export/chrome.h"
#include "tests/unit/fake_training.h"

namespace dynprof {
namespace {

using nlohmann::json;

class StringSink final : public ByteSink {
 public:
  explicit StringSink(std::string& text) : text_(text) {}
  void write(std::string_view bytes) override { text_ += bytes; }
  bool failed() const override { return false; }
  Result<void> finish() override { return {}; }

 private:
  std::string& text_;
};

struct TraceWindows : testing::Test {
  FakeTraining training;

  json trace(const TraceWindow& window, std::vector<CompileIndex> compiles = {}) {
    Attribution attribution(training);
    std::string text;
    EXPECT_TRUE(write_chrome_trace(Analysis(attribution), std::move(compiles),
                                   std::make_unique<StringSink>(text), kMaxTraceBytes, window));
    return json::parse(text);
  }
  static std::size_t slices(const json& trace) {
    std::size_t count = 0;
    for (const json& event : trace["traceEvents"]) count += event["ph"] == "X" ? 1 : 0;
    return count;
  }
  static std::uint64_t ns(const json& number) {
    return static_cast<std::uint64_t>(std::llround(number.get<double>() * 1000));
  }
};

TEST_F(TraceWindows, EverySliceIsInside) {
  training.whole_run();
  const json whole = trace({});
  const TraceWindow window{100'000'000, 250'000'000};
  const json part = trace(window);
  ASSERT_GT(slices(part), 0u);
  EXPECT_LT(slices(part), slices(whole));
  for (const json& event : part["traceEvents"]) {
    if (event["ph"] == "M") continue;
    EXPECT_GE(ns(event["ts"]), window.from_ns);
    EXPECT_LE(ns(event["ts"]) + (event.contains("dur") ? ns(event["dur"]) : 0), window.to_ns);
  }
  // Times are those of the whole trace, so that parts can be laid beside each other.
  EXPECT_EQ(part["baseTimeNanoseconds"], whole["baseTimeNanoseconds"]);
}

// Whatever begins before and ends after it is cut, not left out.
TEST_F(TraceWindows, PartsAddUpToTheWhole) {
  training.whole_run();
  const auto busy_ns = [](const json& trace) {
    std::uint64_t sum = 0;
    for (const json& event : trace["traceEvents"])
      if (event["ph"] == "X") sum += ns(event["dur"]);
    return sum;
  };
  const std::uint64_t middle = 130'000'000;
  EXPECT_EQ(busy_ns(trace({0, middle})) + busy_ns(trace({middle})), busy_ns(trace({})));
}

TEST_F(TraceWindows, OutsideOfTheRecordingThereIsNothing) {
  training.whole_run();
  const json part = trace({3'600'000'000'000, 7'200'000'000'000});
  EXPECT_EQ(slices(part), 0u);
  EXPECT_EQ(slices(trace({0, 0})), 0u);
}

TEST_F(TraceWindows, OfOneCompile) {
  training.whole_run();
  const json whole = trace({}, {0});
  const json begin = trace({0, 60'000'000}, {0});
  EXPECT_LE(slices(begin), slices(whole));
  for (const json& event : begin["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_LE(ns(event["ts"]) + ns(event["dur"]), 60'000'000u);
  }
}

TEST_F(TraceWindows, OfOneProcess) {
  training.whole_run();
  const ThreadId other = training.thread(200, 200, "rank1");
  training.sample(other, training.stack({training.python("/home/u/train.py", "main", 40, 44)}), 0,
                  0, 5);
  const json whole = trace({});
  std::size_t of_other = 0;
  for (const json& event : whole["traceEvents"])
    if (event["ph"] == "X" && event["pid"] == 200) ++of_other;
  ASSERT_GT(of_other, 0u);
  TraceWindow window;
  window.pid = 200;
  const json part = trace(window);
  EXPECT_EQ(slices(part), of_other);
  for (const json& event : part["traceEvents"]) {
    EXPECT_EQ(event["pid"], 200) << event;
  }
}

}  // namespace
}  // namespace dynprof
