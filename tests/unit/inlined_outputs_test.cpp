// Inlined functions and source lines in every output that shows native frames.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "symbolizer/export/chrome.h"
#include "symbolizer/export/folded.h"
#include "symbolizer/export/perf_script.h"
#include "symbolizer/export/speedscope.h"
#include "symbolizer/profile/analysis.h"
#include "symbolizer/profile/functions.h"
#include "symbolizer/recording/inlined_frames.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class Text final : public ByteSink {
 public:
  explicit Text(std::string& to) : text_(to) {}
  void write(std::string_view bytes) override { text_ += bytes; }
  bool failed() const override { return false; }
  Result<void> finish() override { return {}; }

 private:
  std::string& text_;
};

class InlinedOutputs : public testing::Test {
 protected:
  InlinedOutputs() {
    const FrameId outer = fake_.native("outer", "/usr/bin/work", 0x1140);
    const FrameId apart = fake_.native("inner", "/usr/bin/work", 0x1200);
    const StackId stack = fake_.stack({outer}), called = fake_.stack({outer, apart});
    const StringId file = fake_.string("/src/work.cpp");
    fake_.edit_tables().source_places = {
        {outer, {{fake_.string("inner"), file, 12, 10}, {0, file, 22, 20}}},
        {apart, {{0, file, 11, 10}}}};
    const auto shown = recording::show_inlined(fake_.edit_tables(), 1 << 20);
    const ThreadId thread = fake_.thread(100, 100, "work");
    fake_.sample(thread, shown.now(stack), 0, kSampleNoPython, 3);
    fake_.sample(thread, shown.now(called), 0, kSampleNoPython, 1);
  }
  template <class Write>
  std::string written(Write&& write) {
    std::string text;
    Text sink(text);
    EXPECT_TRUE(write(sink));
    return text;
  }
  FakeRecording fake_;
};

TEST_F(InlinedOutputs, PerfScript) {
  Attribution attribution(fake_);
  std::string text =
      written([&](ByteSink& sink) { return write_perf_script(Analysis(attribution), {}, sink); });
  EXPECT_THAT(text, HasSubstr("cpu-clock:\n"
                              "\t            1140 inner (inlined)\n"
                              "\t            1140 outer (/usr/bin/work)\n\n"));
  EXPECT_THAT(text, HasSubstr("\t            1200 inner (/usr/bin/work)\n"));
  EXPECT_THAT(text, Not(HasSubstr("work.cpp")));
  text =
      written([&](ByteSink& sink) { return write_perf_srcline(Analysis(attribution), {}, sink); });
  EXPECT_THAT(text, HasSubstr("cpu-clock:\n"
                              "\t            1140 inner (inlined)\n"
                              "  /src/work.cpp:12\n"
                              "\t            1140 outer (/usr/bin/work)\n"
                              "  /src/work.cpp:22\n\n"));
}

TEST_F(InlinedOutputs, FoldedStacksHaveTheNames) {
  Attribution attribution(fake_);
  const std::string text = written(
      [&](ByteSink& sink) { return write_folded(Analysis(attribution), FoldedOptions{}, sink); });
  EXPECT_EQ(text, "outer;inner 3\nouter;inner;inner 1\n");
}

TEST_F(InlinedOutputs, AFunctionIsOneInProfiles) {
  Attribution attribution(fake_);
  const Functions functions(attribution.frames());
  std::size_t inner = 0;
  for (FunctionId id = 0; id < functions.size(); ++id)
    if (functions[id].name == "<inner in work>") ++inner;
  EXPECT_EQ(inner, 1u);
}

TEST_F(InlinedOutputs, ReportMarksThem) {
  Attribution attribution(fake_);
  const Analysis analysis(attribution);
  ReportOptions options;
  options.sort = {SortKey::kSymbol};
  EXPECT_THAT(render_report(analysis, options),
              HasSubstr("    75.00%  [.] inner (inlined)\n    25.00%  [.] inner\n"));
  options.children = true;
  const std::string with_children = render_report(analysis, options);
  EXPECT_THAT(with_children, HasSubstr("   100.00%    75.00%  [.] inner (inlined)\n"));
  EXPECT_THAT(with_children, HasSubstr("   100.00%     0.00%  [.] outer\n"));
}

TEST_F(InlinedOutputs, ChromeTraceHasFileAndLine) {
  Attribution attribution(fake_);
  std::string text;
  ASSERT_TRUE(write_chrome_trace(Analysis(attribution), {}, std::make_unique<Text>(text)));
  int inlined = 0, others = 0;
  const json trace = json::parse(text);
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["cat"] != "native") continue;
    const json& args = event["args"];
    EXPECT_EQ(args["object"], "/usr/bin/work");
    EXPECT_EQ(args["file"], "/src/work.cpp");
    if (event["name"] == "outer") {
      EXPECT_EQ(args["line"], 22);
    }
    if (event["name"] == "inner" && args.contains("inlined")) {
      EXPECT_EQ(args["line"], 12);
      ++inlined;
    } else if (event["name"] == "inner") {
      EXPECT_EQ(args["line"], 11);
      ++others;
    }
  }
  EXPECT_EQ(inlined, 1);
  EXPECT_EQ(others, 1);
}

TEST_F(InlinedOutputs, SpeedscopeHasWhereAFunctionIs) {
  Attribution attribution(fake_);
  const json file = json::parse(
      written([&](ByteSink& sink) { return write_speedscope(Analysis(attribution), {}, sink); }));
  bool seen = false;
  for (const json& frame : file["shared"]["frames"]) {
    if (frame["name"] != "inner") continue;
    EXPECT_EQ(frame["file"], "/src/work.cpp");
    EXPECT_EQ(frame["line"], 10);
    seen = true;
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace dynprof
