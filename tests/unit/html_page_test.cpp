// The page of a recording: what is in it, and that nothing from a target is markup.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "symbolizer/base/text.h"
#include "symbolizer/export/html/assets.h"
#include "symbolizer/export/html/page.h"
#include "symbolizer/export/html/report_page.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_training.h"
#include "tests/unit/page_data.h"

namespace dynprof {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string page_of(const Recording& recording, const std::vector<CompileIndex>& compiles = {}) {
  const Attribution attribution(recording);
  PageSink sink;
  EXPECT_TRUE(write_html(Analysis(attribution), {.compiles = compiles}, sink));
  EXPECT_EQ(sink.finished, 1);
  return sink.text;
}

// Every string of a document.
void each_string(const Json& json, const std::function<void(const std::string&)>& visit) {
  if (json.is_string()) visit(json.get<std::string>());
  for (const Json& part : json)
    if (json.is_structured()) each_string(part, visit);
}

TEST(HtmlPage, HasTheCompilesOfATrainingRun) {
  FakeTraining fake;
  fake.whole_run();
  const Json data = page_data(page_of(fake));
  EXPECT_EQ(data["title"], "python3 train.py (pid 100)");
  const Json* compiles = page_table(data, "compiles");
  ASSERT_NE(compiles, nullptr);
  std::vector<std::string> ids;
  for (const Json& row : (*compiles)["rows"]) ids.push_back(row["cells"][0]);
  EXPECT_THAT(ids, testing::UnorderedElementsAre("0/0", "1/0", "1/0_1", "backward 1/0", "0/1"));
  EXPECT_FALSE(data["summary"].empty());
  EXPECT_EQ(data["summary"][0][0], "Still open");  // 0/1, which the recording ends in
  EXPECT_EQ(data["summary"][1][0], "Compiling");
  EXPECT_FALSE(data["timeline"]["rows"].empty());
  EXPECT_FALSE(data["flame"]["groups"].empty());
  // Each row has the group of its flame graph.
  for (const Json& row : (*compiles)["rows"])
    EXPECT_EQ(data["flame"]["groups"][row["group"].get<std::size_t>()]["name"], row["cells"][0]);
}

TEST(HtmlPage, OfOneCompileHasNoOther) {
  FakeTraining fake;
  fake.whole_run();
  const Json data = page_data(page_of(fake, {0}));
  EXPECT_EQ((*page_table(data, "compiles"))["rows"].size(), 1u);
  EXPECT_EQ(data["flame"]["groups"].size(), 1u);
}

TEST(HtmlPage, AnInstalledPackageCanBeUserCode) {
  FakeRecording fake;
  fake.sample(fake.thread(1, 1),
              fake.stack({fake.python("/home/me/t.py", "main", 1),
                          fake.python("/v/site-packages/transformers/bert.py", "run", 7)}));
  const Attribution attribution(fake);
  const Analysis analysis(attribution);
  const auto first_line = [&](const ReportOptions& options) -> Json {
    PageSink sink;
    EXPECT_TRUE(write_html(analysis, options, sink));
    return (*page_table(page_data(sink.text), "lines"))["rows"][0]["cells"][0];
  };
  EXPECT_EQ(first_line({}), "/home/me/t.py:1");
  EXPECT_EQ(first_line({.user_packages = {"transformers"}}),
            "/v/site-packages/transformers/bert.py:7");
}

TEST(HtmlPage, AnEmptyRecordingIsAPageToo) {
  FakeRecording fake;
  const Json data = page_data(page_of(fake));
  EXPECT_TRUE((*page_table(data, "compiles"))["rows"].empty());
  EXPECT_TRUE(data["flame"]["groups"].empty());
}

TEST(HtmlPage, OneSampleIsAPageToo) {
  FakeRecording fake;
  fake.sample(fake.thread(1, 1), fake.stack({fake.python("a.py", "f", 1)}));
  const Json data = page_data(page_of(fake));
  EXPECT_EQ(data["flame"]["groups"][0]["samples"], 1);
}

TEST(HtmlPage, NamesOfATargetAreNoMarkupAndNoControls) {
  HostileRecording fake;
  const std::string page = page_of(fake);
  const std::string text = page_data_text(page);
  EXPECT_THAT(text, Not(HasSubstr("<")));
  EXPECT_THAT(text, HasSubstr("\\u003c/script>\\u003cb>"));
  // What follows the data is ours: the script, to the end of the page.
  std::string rest = page.substr(page.find(text) + text.size());
  EXPECT_EQ(rest, "</script>\n<script>\n" + std::string(page_script()) +
                      "\n</script>\n</body>\n</html>\n");
  const Json data = page_data(page);
  std::size_t strings = 0;
  each_string(data, [&](const std::string& one) {
    ++strings;
    EXPECT_EQ(one, escape_terminal(one));  // nothing is left to escape, U+202E among it
    EXPECT_EQ(one, valid_utf8(one));
    EXPECT_LE(one.size(), 2000u);
  });
  EXPECT_GT(strings, 100u);
}

TEST(HtmlPage, TextIsCutAndEscaped) {
  EXPECT_EQ(page_text("plain", 100), "plain");
  EXPECT_EQ(page_text("a\nb\x1b[0m\xe2\x80\xae", 100), "a\\nb\\x1b[0m\\u202e");
  EXPECT_EQ(page_text("lone \xed\xb2\x80 \xff", 100), "lone \\udc80 \\xff");
  EXPECT_LE(page_text(std::string(5000, '\x01'), 100).size(), 100u);
}

TEST(HtmlPage, NeedsNoNetworkAndRunsNoText) {
  const std::string all =
      std::string(page_template()) + std::string(page_style()) + std::string(page_script());
  for (const char* never :
       {"http:", "https:", "//cdn", "@import", "url(", "src=", "innerHTML", "outerHTML",
        "insertAdjacentHTML", "document.write", "eval(", "new Function", "fetch(", "XMLHttpRequest",
        "WebSocket", "localStorage"})
    EXPECT_THAT(all, Not(HasSubstr(never)));
  EXPECT_THAT(std::string(page_template()), HasSubstr("default-src 'none'"));
  EXPECT_THAT(std::string(page_script()), Not(HasSubstr("</script")));
  EXPECT_THAT(std::string(page_script()), Not(HasSubstr("<!--")));
  EXPECT_THAT(std::string(page_style()), Not(HasSubstr("</style")));
}

TEST(HtmlPage, PhasesStandInTheirCompileOnTheTimeline) {
  FakeRecording fake;
  const ThreadId thread = fake.thread(100, 100, "python3");
  FakeEdges edges(fake, thread);
  fake.pass_ms(100);
  edges.compile("0/0");
  edges.begin("dynamo");
  fake.pass_ms(10);
  edges.phase("backend_compile", 40);
  fake.pass_ms(10);
  edges.end();
  fake.edit_trailer().end_ns = fake.now() + 1'000'000'000;
  const Json timeline = page_data(page_of(fake))["timeline"];
  ASSERT_EQ(timeline["rows"].size(), 1u);
  const Json& row = timeline["rows"][0];
  EXPECT_EQ(timeline["length"], 1'160'000);
  std::map<std::string, Json> slices;
  for (std::size_t i = 0; i < row["begin"].size(); ++i)
    slices[timeline["names"][row["nameOf"][i].get<std::size_t>()]] = {
        row["begin"][i], row["length"][i], row["depthOf"][i]};
  EXPECT_EQ(slices["0/0"], (Json{100'000, 60'000, 0}));
  EXPECT_EQ(slices["dynamo"], (Json{100'000, 60'000, 1}));
  EXPECT_EQ(slices["backend_compile"], (Json{110'000, 40'000, 2}));
}

TEST(HtmlPage, GeneratedCodeHasTheTimeOfItsLines) {
  FakeRecording fake;
  const ThreadId thread = fake.thread(100, 100, "python3");
  fake.fact(100, "generated",
            R"({"trace_id": "0/0", "kind": "wrapper", "name": "w.py", "origin": "/tmp/cab.py"})",
            "one\ntwo\nthree\nfour\nfive\nsix </script>\nseven\n");
  const FrameId frame = fake.python("/tmp/cab.py", "call", 5, 6);
  fake.sample(thread, fake.stack({frame}), 0, 0, 7);
  const Json data = page_data(page_of(fake));
  ASSERT_EQ(data["code"].size(), 1u);
  EXPECT_EQ(data["code"][0]["lines"][3], (Json{6, 70'000'000, "six </script>"}));
}

}  // namespace
}  // namespace dynprof
