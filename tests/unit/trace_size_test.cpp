// A chrome trace that would be too large: what is short is merged, nothing of it is forgotten, and the file
// is as small as it was to be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "symbolizer/export/chrome.h"
#include "symbolizer/export/trace_merge.h"
#include "tests/unit/fake_training.h"

namespace dynprof {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr std::uint64_t kUs = 1'000, kMs = 1'000'000;
constexpr std::uint64_t kShortWaits = 10'000;  // of each thread

class TextSink final : public ByteSink {
 public:
  explicit TextSink(std::string& text) : text_(text) {}
  void write(std::string_view bytes) override { text_ += bytes; }
  bool failed() const override { return false; }
  Result<void> finish() override { return {}; }

 private:
  std::string& text_;
};

// Two threads that wait all the time, a hundred microseconds each, at many depths; now and then for long.
class PingPong : public FakeRecording {
 public:
  PingPong() {
    std::minstd_rand random(1);
    std::vector<StackId> stacks;
    std::vector<FrameId> frames = {python("/home/u/play.py", "main", 1, 2)};
    for (int depth = 0; depth < 20; ++depth) {
      frames.push_back(native("pass_on_" + std::to_string(depth), "/usr/bin/ping_pong", 64));
      stacks.push_back(stack(frames));
    }
    for (int i = 0; i < 2; ++i) {
      Wait wait;
      wait.thread = thread(100, 100 + i, "ping_pong");
      sample(wait.thread, stacks[0], 0, 0, 1);
      wait.kind = WaitKind::kPipe;
      wait.begin_ns = 1'000'000'000;
      for (std::uint64_t k = 0; k < kShortWaits; ++k) {
        wait.stack = stacks[random() % stacks.size()];
        const bool is_long = k % 5000 == 4999;
        wait.span_ns = wait.length_ns = is_long ? 200 * kMs : 80 * kUs;
        edit_tables().waits.push_back(wait);
        wait.begin_ns += wait.span_ns + 20 * kUs;
      }
    }
  }
};

std::string trace_of(const Attribution& attribution, std::uint64_t limit, TraceMerges& merges) {
  std::string text;
  auto done =
      write_chrome_trace(Analysis(attribution), {}, std::make_unique<TextSink>(text), limit);
  EXPECT_TRUE(done.has_value());
  if (done) merges = *done;
  return text;
}

// Slices of a row that overlap without one being inside the other.
std::size_t crossings(const Json& trace) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::pair<double, double>>> rows;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X")
      rows[{event["pid"], event["tid"]}].emplace_back(
          event["ts"].get<double>(), event["ts"].get<double>() + event["dur"].get<double>());
  std::size_t found = 0;
  for (auto& [row, slices] : rows) {
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> open;
    for (auto [begin, end] : slices) {
      while (!open.empty() && open.back() <= begin + 0.0005) open.pop_back();
      if (!open.empty() && end > open.back() + 0.0005) ++found;
      open.push_back(end);
    }
  }
  return found;
}

TEST(TraceSize, ASmallOneIsWhole) {
  const PingPong recording;
  Attribution attribution(recording);
  TraceMerges merges;
  const Json trace = Json::parse(trace_of(attribution, kMaxTraceBytes, merges));
  EXPECT_EQ(merges.files, 0u);
  EXPECT_EQ(merges.sentence(kMaxTraceBytes), "");
  EXPECT_FALSE(trace["dynprof"].contains("merged_below_ns"));
  std::size_t waits = 0;
  for (const Json& event : trace["traceEvents"]) waits += event["name"] == "wait: pipe";
  EXPECT_EQ(waits, 2 * kShortWaits);
}

TEST(TraceSize, ALargeOneIsMergedAndNothingIsForgotten) {
  const PingPong recording;
  Attribution attribution(recording);
  for (const std::uint64_t limit : {3'000'000, 300'000, 60'000}) {
    TraceMerges merges;
    const std::string text = trace_of(attribution, limit, merges);
    EXPECT_LE(text.size(), limit);
    const Json trace = Json::parse(text);
    EXPECT_EQ(trace["dynprof"]["merged_below_ns"], merges.coarsest_ns);
    EXPECT_THAT(trace["dynprof"]["note"].get<std::string>(), HasSubstr("merged"));
    EXPECT_EQ(merges.files, 1u);
    EXPECT_THAT(merges.sentence(limit), HasSubstr(std::to_string(limit) + " bytes"));
    EXPECT_EQ(crossings(trace), 0u);
    std::uint64_t waits = 0, long_waits = 0;
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] != "X" || event["cat"] != "idle") continue;
      if (event["name"] == "wait: pipe") ++waits;
      if (event["name"] == "wait: pipe" && event["dur"].get<double>() > 100'000) ++long_waits;
      if (event["args"].contains("count")) waits += event["args"]["count"].get<std::uint64_t>();
    }
    EXPECT_EQ(waits, 2 * kShortWaits) << limit;
    EXPECT_EQ(long_waits, merges.coarsest_ns < 200 * kMs ? 4u : 0u) << limit;
  }
}

// Small ones stay whole; the large ones share what is left.
TEST(TraceSize, CompilesShareOneLimit) {
  FakeTraining training;
  training.whole_run();
  const Attribution attribution(training);
  const Analysis analysis(attribution);
  const auto sizes_with = [&](std::uint64_t limit, TraceMerges& merges) {
    std::vector<std::string> texts(attribution.compiles().size());
    std::vector<TraceTarget> targets;
    for (CompileIndex i = 0; i < texts.size(); ++i)
      targets.push_back({{i}, [&texts, i]() -> Result<std::unique_ptr<ByteSink>> {
                           return std::unique_ptr<ByteSink>(std::make_unique<TextSink>(texts[i]));
                         }});
    auto done = write_chrome_traces(analysis, std::move(targets), limit);
    EXPECT_TRUE(done.has_value());
    if (done) merges = *done;
    std::vector<std::size_t> sizes;
    for (const std::string& text : texts) sizes.push_back(text.size());
    return sizes;
  };
  TraceMerges merges;
  const std::vector<std::size_t> whole = sizes_with(kMaxTraceBytes, merges);
  EXPECT_EQ(merges.files, 0u);
  const std::size_t sum = std::accumulate(whole.begin(), whole.end(), std::size_t{0});
  const std::size_t largest = *std::max_element(whole.begin(), whole.end());
  const std::size_t limit = sum - largest / 4;
  ASSERT_GT(limit, largest) << "each of them would fit alone";
  const std::vector<std::size_t> reduced = sizes_with(limit, merges);
  EXPECT_GE(merges.files, 1u);
  EXPECT_LT(merges.files, whole.size());
  EXPECT_LE(std::accumulate(reduced.begin(), reduced.end(), std::size_t{0}), limit);
  EXPECT_EQ(*std::min_element(reduced.begin(), reduced.end()),
            *std::min_element(whole.begin(), whole.end()));
}

TEST(TraceSize, MergedSlicesDoNotReachIntoThoseDrawn) {
  SliceMerger merger(kMs);
  const SliceMerger::Row row = {1, 2};
  const auto add = [&](std::uint64_t begin_us, std::uint64_t end_us) {
    return merger.add(row, begin_us * kUs, end_us * kUs);
  };
  EXPECT_FALSE(add(0, 100).second);
  EXPECT_FALSE(add(50, 80).second);  // inside the one before
  EXPECT_FALSE(add(200, 300).second);
  auto [before, drawn] = add(400, 5'000);
  EXPECT_TRUE(drawn);
  ASSERT_TRUE(before);
  EXPECT_EQ(before->count, 3u);
  EXPECT_EQ(before->begin_ns, 0u);
  EXPECT_EQ(before->end_ns, 300 * kUs);
  EXPECT_EQ(before->busy_ns, 200 * kUs);
  // The next is inside the one drawn, the one after it is not, though of the same millisecond.
  EXPECT_FALSE(add(4'990, 4'995).second);
  auto [inside, second] = add(5'010, 5'020);
  EXPECT_FALSE(second);
  ASSERT_TRUE(inside);
  EXPECT_EQ(inside->end_ns, 4'995 * kUs);
  // Another millisecond.
  EXPECT_TRUE(add(6'100, 6'200).first);
  const auto left = merger.take();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].begin_ns, 6'100 * kUs);
}

TEST(TraceSize, WithoutAGrainEverythingIsDrawn) {
  SliceMerger merger(0);
  auto [before, drawn] = merger.add({1, 2}, 0, 1);
  EXPECT_TRUE(drawn);
  EXPECT_FALSE(before);
  EXPECT_TRUE(merger.take().empty());
}

}  // namespace
}  // namespace dynprof
