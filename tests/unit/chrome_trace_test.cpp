#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "symbolizer/export/chrome.h"
#include "symbolizer/export/display.h"
#include "symbolizer/export/select.h"
#include "tests/unit/fake_training.h"

namespace dynprof {
namespace {

using nlohmann::json;

// Collects what a target writes and how many are open at once.
struct Collector {
  std::map<std::string, std::string> texts;
  int open = 0, most_open = 0;

  class Sink final : public ByteSink {
   public:
    Sink(Collector& owner, std::string name) : owner_(owner), name_(std::move(name)) {
      owner_.most_open = std::max(owner_.most_open, ++owner_.open);
    }
    void write(std::string_view bytes) override { owner_.texts[name_] += bytes; }
    bool failed() const override { return false; }
    Result<void> finish() override {
      --owner_.open;
      return {};
    }

   private:
    Collector& owner_;
    std::string name_;
  };
  TraceTarget target(const std::string& name, std::vector<CompileIndex> compiles = {}) {
    return {std::move(compiles), [this, name]() -> Result<std::unique_ptr<ByteSink>> {
              EXPECT_FALSE(texts.contains(name)) << name << " opened twice";
              texts[name];
              return std::unique_ptr<ByteSink>(std::make_unique<Sink>(*this, name));
            }};
  }
  json parsed(const std::string& name) const { return json::parse(texts.at(name)); }
};

std::vector<json> slices(const json& trace, const std::string& category) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == category) found.push_back(event);
  }
  return found;
}

std::set<std::string> names(const std::vector<json>& events) {
  std::set<std::string> found;
  for (const json& event : events) found.insert(event["name"].get<std::string>());
  return found;
}

TEST(ChromeTrace, HeadGivesTheTimeBaseAsKinetoDoes) {
  FakeTraining training;
  training.run(1);
  Attribution attribution(training);
  Collector out;
  ASSERT_TRUE(write_chrome_traces(Analysis(attribution), {out.target("all")}));
  json trace = out.parsed("all");
  EXPECT_EQ(trace["schemaVersion"], 1);
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  EXPECT_EQ(trace["baseTimeNanoseconds"], 1'700'000'000'000'000'000 + 1'000'000'000);
  EXPECT_EQ(trace["dynprof"]["start_monotonic_ns"], 1'000'000'000);
  EXPECT_EQ(trace["dynprof"]["clock"], "CLOCK_MONOTONIC");
}

TEST(ChromeTrace, SaysHowManyChildrenItLeavesOut) {
  FakeTraining training;
  training.run(1);
  const std::int32_t target = training.meta().target_pid;
  for (std::int32_t i = 0; i < 503; ++i) {
    training.edit_tables().lives.push_back({.time_ns = training.meta().start_ns,
                                            .pid = 10'000 + i,
                                            .parent_pid = target,
                                            .parent_tid = target});
  }
  Attribution attribution(training);
  Collector out;
  ASSERT_TRUE(write_chrome_traces(Analysis(attribution), {out.target("all")}));
  json trace = out.parsed("all");
  EXPECT_EQ(trace["dynprof"]["child_processes_left_out"], 3);
  std::set<std::string> labels;
  for (const json& event : trace["traceEvents"])
    if (event["name"] == "process_labels" && event["pid"] == target)
      labels.insert(event["args"]["labels"].get<std::string>());
  EXPECT_EQ(labels, (std::set<std::string>{"CPU; 3 child processes are not drawn"}));
}

TEST(ChromeTrace, CompilesPhasesAndFunctionsOfAWholeRun) {
  FakeTraining training;
  training.whole_run();
  Attribution attribution(training);
  Collector out;
  ASSERT_TRUE(write_chrome_traces(Analysis(attribution), {out.target("all")}));
  json trace = out.parsed("all");
  EXPECT_EQ(
      names(slices(trace, "compile")),
      (std::set<std::string>{"Compile 0/0 forward attempt 0", "Compile 1/0 forward attempt 0",
                             "Compile 1/0 forward attempt 1", "Compile 1/0 backward attempt 0",
                             "Compile 0/1 forward attempt 0"}));
  EXPECT_EQ(names(slices(trace, "phase")), (std::set<std::string>{"dynamo", "inductor"}));
  EXPECT_TRUE(names(slices(trace, "python_function")).contains("<module> train.py"));
  EXPECT_EQ(names(slices(trace, "native")), (std::set<std::string>{"cfunction_call"}));

  json first = slices(trace, "compile").front();
  EXPECT_EQ(first["args"]["trace_id"], "0/0");
  EXPECT_EQ(first["args"]["function"], "Block.forward");
  EXPECT_EQ(first["args"]["line"], 20);
  EXPECT_EQ(first["tid"], 1'000'000'100);
  // 5 run samples before it; 12 samples, 10 periods without, then what runs next ends it.
  EXPECT_DOUBLE_EQ(first["ts"], 5 * 10'000.0);
  EXPECT_DOUBLE_EQ(first["dur"], (12 + 10) * 10'000.0);

  json step = slices(trace, "python_function").front();
  EXPECT_EQ(step["name"], "step");
  EXPECT_EQ(step["args"]["file"], "/home/u/train.py");
  EXPECT_EQ(step["args"]["line"], 52);
  EXPECT_EQ(step["tid"], 100);
}

TEST(ChromeTrace, ACompileAloneBeginsAtItsFirstFrameAndHoldsOnlyItself) {
  FakeTraining training;
  training.whole_run();
  Attribution attribution(training);
  Collector out;
  std::vector<TraceTarget> targets = {out.target("all")};
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
    targets.push_back(out.target(attribution.file_stem(i), {i}));
  }
  ASSERT_TRUE(write_chrome_traces(Analysis(attribution), std::move(targets)));
  ASSERT_EQ(out.texts.size(), 6u);
  // The session's and one compile's: each is finished with its last sample.
  EXPECT_EQ(out.most_open, 2);
  EXPECT_EQ(out.open, 0);

  json alone = out.parsed("_compile_inner_1_0_1");
  EXPECT_EQ(names(slices(alone, "compile")),
            (std::set<std::string>{"Compile 1/0 forward attempt 1"}));
  std::set<std::string> functions = names(slices(alone, "python_function"));
  EXPECT_TRUE(functions.contains("_compile"));
  EXPECT_TRUE(functions.contains("GraphLowering.run"));
  EXPECT_FALSE(functions.contains("main"));
  EXPECT_FALSE(functions.contains("Module._wrapped_call_impl"));
  for (const json& event : alone["traceEvents"]) {
    EXPECT_TRUE(event["tid"] == 0 || event["tid"] == 100 || event["tid"] == 1'000'000'100);
  }
  json backward = out.parsed("compile_backward_1_0");
  EXPECT_TRUE(names(slices(backward, "python_function"))
                  .contains("_AutogradBackwardCompiler.get_or_compile"));
  EXPECT_FALSE(names(slices(backward, "python_function")).contains("BackwardCFunction.apply"));
}

TEST(ChromeTrace, SeveralCompilesInOneFile) {
  FakeTraining training;
  training.whole_run();
  Attribution attribution(training);
  auto both = find_compiles(attribution, "1/0");
  ASSERT_TRUE(both);
  Collector out;
  ASSERT_TRUE(write_chrome_traces(Analysis(attribution), {out.target("1/0", *both)}));
  EXPECT_EQ(slices(out.parsed("1/0"), "compile").size(), 3u);  // two attempts and the backward
}

TEST(ChromeTrace, OneFailingTargetDoesNotStopTheOthers) {
  FakeTraining training;
  training.whole_run();
  Attribution attribution(training);
  Collector out;
  std::vector<TraceTarget> targets;
  targets.push_back({{0}, []() -> Result<std::unique_ptr<ByteSink>> { return error("full"); }});
  targets.push_back(out.target("all"));
  auto done = write_chrome_traces(Analysis(attribution), std::move(targets));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().what, "full");
  EXPECT_EQ(slices(out.parsed("all"), "compile").size(), 5u);
}

TEST(ChromeTrace, HostileNamesStayInsideTheirStrings) {
  HostileRecording hostile;
  Attribution attribution(hostile);
  Collector out;
  ASSERT_TRUE(write_chrome_traces(Analysis(attribution), {out.target("all")}));
  json trace = out.parsed("all");  // throws on what is not UTF-8 or not JSON
  std::set<std::string> functions = names(slices(trace, "python_function"));
  EXPECT_TRUE(functions.contains("with\nnew\r\nlines"));
  EXPECT_TRUE(functions.contains("quote\"back\\slash"));
  EXPECT_TRUE(functions.contains("<root side missing>"));
  EXPECT_TRUE(functions.contains("<no name>"));
  for (const std::string& name : functions) EXPECT_LE(name.size(), 2 * kMaxDisplayBytes + 1);
}

TEST(CapText, CutsBetweenCharacters) {
  EXPECT_EQ(cap_text("short", 10), "short");
  EXPECT_EQ(cap_text("0123456789", 10), "0123456789");
  EXPECT_EQ(cap_text("0123456789a", 10), "0123456…");
  EXPECT_EQ(cap_text("012345äöü", 10), "012345…");              // ä would end at byte 8
  EXPECT_EQ(cap_text(std::string(20, '\x80'), 10).size(), 7u);  // not UTF-8: anywhere
}

TEST(FindCompiles, TakesWhatPeopleAndTorchWrite) {
  FakeTraining training;
  training.whole_run();
  Attribution attribution(training);
  auto count = [&](const char* text) {
    auto found = find_compiles(attribution, text);
    return found ? found->size() : 0;
  };
  EXPECT_EQ(count("0/0"), 1u);
  EXPECT_EQ(count("[0/0]"), 1u);
  EXPECT_EQ(count("1/0"), 3u);
  EXPECT_EQ(count("1/0_1"), 1u);
  EXPECT_EQ(count("backward 1/0"), 1u);
  EXPECT_EQ(count("_compile_inner_1_0_1"), 1u);
  auto none = find_compiles(attribution, "7/7\x1b");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().what, "no compile 7/7\\x1b");
  EXPECT_EQ(none.error().hint, "there is 0/0 0/1 1/0");
}

}  // namespace
}  // namespace dynprof
