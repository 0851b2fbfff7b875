#include "symbolizer/attribution/compile_lines.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

// One compile 0/0 of 100 ms, looked at in its middle, 50 ms after the look before.
struct Looked {
  explicit Looked(const std::string& json, const std::string& id = "0/0") {
    ThreadId thread = fake.thread(1, 1);
    FakeEdges edges(fake, thread);
    edges.compile("0/0");
    edges.watch();
    edges.begin("dynamo");
    fake.pass_ms(50);
    edges.compile(id);
    edges.cpu_ns = 50'000'000;
    edges.emit(EdgeKind::kUserLine, json, 0);
    edges.compile("0/0");
    fake.pass_ms(50);
    edges.end();
    attribution.emplace(fake);
    found.emplace(*attribution);
  }
  const std::vector<LineTime>& lines() const { return found->of(0); }

  FakeRecording fake;
  std::optional<Attribution> attribution;
  std::optional<CompileLines> found;
};

TEST(CompileLines, AreSummedByLineAndUse) {
  Looked looked(R"({"kind":"tracing","file":"/a.py","line":7,"function":"f"})");
  ASSERT_EQ(looked.attribution->compiles().size(), 1u);
  ASSERT_EQ(looked.lines().size(), 1u);
  const LineTime& line = looked.lines()[0];
  EXPECT_EQ(line.file, "/a.py");
  EXPECT_EQ(line.line, 7);
  EXPECT_EQ(line.function, "f");
  EXPECT_EQ(line.ns[static_cast<std::size_t>(LineUse::kTracing)], 50'000'000u);
  EXPECT_EQ(line.sum_ns(), 50'000'000u);
}

TEST(CompileLines, WaitersAreTheHoldersCompile) {
  Looked looked(R"({"kind":"lock","holder":1})", "");
  ASSERT_EQ(looked.found->waiters(0).size(), 1u);
  EXPECT_EQ(looked.found->waiters(0)[0].ns, 50'000'000u);
  EXPECT_TRUE(looked.lines().empty());
}

TEST(CompileLines, WhatMakesNoSenseIsLeftOut) {
  for (const char* json :
       {"", "[]", "{", R"({"kind":7})", R"({"kind":"none"})", R"({"kind":"lock","holder":"1"})",
        R"({"kind":"lock","holder":99})", R"({"kind":"lock","holder":-99999999999})"}) {
    Looked looked(json);
    EXPECT_TRUE(looked.lines().empty()) << json;
    EXPECT_TRUE(looked.found->waiters(0).empty()) << json;
  }
}

TEST(CompileLines, TextsAndNumbersAreBounded) {
  Looked looked(R"({"kind":"lowering","file":")" + std::string(100'000, 'x') +
                R"(","line":-5,"function":3})");
  ASSERT_EQ(looked.lines().size(), 1u);
  EXPECT_EQ(looked.lines()[0].file.size(), 4096u);
  EXPECT_EQ(looked.lines()[0].line, 0);
  EXPECT_EQ(looked.lines()[0].function, "");
}

TEST(CompileLines, AnotherIdThanTheOpenOneIsNotBelieved) {
  Looked looked(R"({"kind":"tracing","file":"/a.py","line":7})", "4/2");
  EXPECT_TRUE(looked.lines().empty());
}

}  // namespace
}  // namespace dynprof
