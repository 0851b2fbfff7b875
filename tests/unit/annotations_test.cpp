// Ranges that a program marks in itself: which are open at a time, and what the report and the trace show of them.
#include "symbolizer/profile/annotations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "symbolizer/export/chrome.h"
#include "symbolizer/export/html/report_page.h"
#include "symbolizer/report/annotation_rows.h"
#include "symbolizer/report/report.h"
#include "symbolizer/report/rows.h"
#include "tests/unit/fake_recording.h"
#include "tests/unit/page_data.h"

namespace dynprof {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kStart = 1'000'000'000;

class TextSink final : public ByteSink {
 public:
  explicit TextSink(std::string& text) : text_(text) {}
  void write(std::string_view bytes) override { text_ += bytes; }
  bool failed() const override { return false; }
  Result<void> finish() override { return {}; }

 private:
  std::string& text_;
};

class AnnotationsTest : public ::testing::Test {
 protected:
  void range(std::string_view name, std::uint64_t from_ms, std::uint64_t to_ms,
             AnnotationKind kind = AnnotationKind::kRecordFunction, bool end_seen = true) {
    fake.edit_tables().annotations.push_back({.begin_ns = kStart + from_ms * kMs,
                                              .end_ns = kStart + to_ms * kMs,
                                              .thread = thread,
                                              .kind = kind,
                                              .end_seen = end_seen,
                                              .name = fake.string(name)});
  }
  std::vector<std::string> open_at(std::uint64_t ms) {
    std::vector<std::string> names;
    const Annotations annotations(fake.tables());
    annotations.for_each_open(thread, kStart + ms * kMs, [&](const Annotation& one) {
      names.emplace_back(fake.tables().strings[one.name]);
    });
    return names;
  }
  Analysis& analysis() {
    attribution.emplace(fake);
    analyzed.emplace(*attribution);
    return *analyzed;
  }

  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100);
  std::optional<Attribution> attribution;
  std::optional<Analysis> analyzed;
};

TEST_F(AnnotationsTest, TheInnermostComesFirst) {
  range("epoch", 0, 100);
  for (std::uint64_t i = 0; i < 10; ++i) range("step", 10 * i, 10 * i + 8);
  range("forward", 52, 55);
  EXPECT_THAT(open_at(53), ElementsAre("forward", "step", "epoch"));
  EXPECT_THAT(open_at(57), ElementsAre("step", "epoch"));
  EXPECT_THAT(open_at(59), ElementsAre("epoch"));
  EXPECT_THAT(open_at(100), IsEmpty());
}

// NVTX and record_function need not nest.
TEST_F(AnnotationsTest, RangesThatOverlap) {
  range("a", 0, 50);
  range("b", 20, 80, AnnotationKind::kNvtx);
  EXPECT_THAT(open_at(30), ElementsAre("b", "a"));
  EXPECT_THAT(open_at(60), ElementsAre("b"));
}

TEST_F(AnnotationsTest, OfAnotherThreadIsNone) {
  range("a", 0, 50);
  const Annotations annotations(fake.tables());
  const ThreadId other = fake.thread(100, 101);
  EXPECT_FALSE(annotations.is_inside(other, kStart + kMs, "a"));
  EXPECT_TRUE(annotations.is_inside(thread, kStart + kMs, "a"));
  EXPECT_TRUE(annotations.is_inside(thread, kStart + kMs, "*"));
  EXPECT_FALSE(annotations.is_inside(thread, kStart + kMs, "b*"));
}

TEST_F(AnnotationsTest, SumsAndSamples) {
  range("step", 0, 40);
  range("step", 60, 80, AnnotationKind::kRecordFunction, false);
  range("step", 65, 75);  // inside one of its name: its samples count once
  fake.sample(thread, fake.stack({fake.python("/train.py", "main", 1, 2)}), 0, 0, 10);
  const std::vector<AnnotationSums> rows = annotation_rows(analysis());
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].count, 3u);
  EXPECT_EQ(rows[0].open, 1u);
  EXPECT_EQ(rows[0].total_ns, 70 * kMs);
  EXPECT_EQ(rows[0].longest_ns, 40 * kMs);
  EXPECT_EQ(rows[0].samples, 6u);  // at 0, 10, 20, 30, 60 and 70 ms
}

TEST_F(AnnotationsTest, TheReportOfOneAlone) {
  range("warmup", 0, 25);
  fake.sample(thread, fake.stack({fake.python("/train.py", "main", 1, 2)}), 0, 0, 10);
  ReportOptions options;
  options.annotation = "warmup";
  EXPECT_EQ(select_samples(analysis(), options).samples, 3u);
  options.annotation = "warm*";
  EXPECT_EQ(select_samples(analysis(), options).samples, 3u);
  options.annotation = "other";
  EXPECT_EQ(select_samples(analysis(), options).samples, 0u);
  EXPECT_THAT(render_report(analysis(), {}), HasSubstr("Annotations: ranges that the program"));
}

TEST_F(AnnotationsTest, HostileNamesAndDepth) {
  range("\x1b]0;evil\x07\n", 0, 50);
  for (int i = 0; i < 3000; ++i) range("deep", 1, 49);
  fake.sample(thread, fake.stack({fake.python("/train.py", "main", 1, 2)}), 0, 0, 3);
  EXPECT_EQ(open_at(10).size(), Annotations::kMostOpen);
  EXPECT_THAT(render_report(analysis(), {}), Not(HasSubstr("\x1b")));
}

TEST_F(AnnotationsTest, SlicesOfTheTraceNest) {
  range("a", 0, 50);
  range("b", 20, 80, AnnotationKind::kNvtx);
  fake.sample(thread, fake.stack({fake.python("/train.py", "main", 1, 2)}), 0, 0, 9);
  std::string text;
  ASSERT_TRUE(write_chrome_trace(analysis(), {}, std::make_unique<TextSink>(text)));
  std::vector<nlohmann::json> slices;
  const auto trace = nlohmann::json::parse(text);
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["cat"] == "user_annotation") slices.push_back(event);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0]["name"], "a");
  EXPECT_EQ(slices[0]["dur"], 50'000);
  EXPECT_EQ(slices[1]["dur"], 30'000);
  EXPECT_EQ(slices[1]["args"]["kind"], "NVTX");
  EXPECT_EQ(slices[1]["args"]["whole_ms"], 60);
}

TEST_F(AnnotationsTest, ThePageHasThem) {
  range("step", 0, 40);
  range("load", 10, 20, AnnotationKind::kNvtx);
  range("late", 30, 60, AnnotationKind::kItt, false);  // it goes on after the range around it
  fake.sample(thread, fake.stack({fake.python("/train.py", "main", 1, 2)}), 0, 0, 10);
  PageSink sink;
  ASSERT_TRUE(write_html(analysis(), {}, sink));
  const nlohmann::json data = page_data(sink.text);
  const nlohmann::json* table = page_table(data, "annotations");
  ASSERT_NE(table, nullptr);
  std::vector<std::string> names;
  for (const auto& row : (*table)["rows"]) names.push_back(row["cells"][0]);
  EXPECT_EQ(names, (std::vector<std::string>{"step", "late", "load"}));
  const nlohmann::json& row = data["timeline"]["rows"].back();
  EXPECT_EQ(row["name"], "annotations, thread 100 of process 100");
  EXPECT_EQ(row["begin"], nlohmann::json({0, 10'000, 30'000}));
  EXPECT_EQ(row["length"], nlohmann::json({40'000, 10'000, 30'000}));
  EXPECT_EQ(row["depthOf"], nlohmann::json({0, 1, 1}));
  EXPECT_EQ(row["exactOf"], nlohmann::json({1, 1, 0}));
}

}  // namespace
}  // namespace dynprof
