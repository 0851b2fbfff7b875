#include "symbolizer/attribution/compile_lines.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/fake_edges.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

// One compile 0/0 of 100 ms, sampled in its middle.
class CompileLinesTest : public testing::Test {
 protected:
  CompileLinesTest() {
    edges.compile("0/0");
    edges.watch();
    edges.begin("dynamo");
    fake.pass_ms(50);
  }
  CompileLines found() {
    fake.pass_ms(50);
    edges.compile("0/0");
    edges.end();
    attribution.emplace(fake);
    EXPECT_EQ(attribution->compiles().size(), 1u);
    return CompileLines(*attribution);
  }

  FakeRecording fake;
  FakeEdges edges{fake, fake.thread(1, 1)};
  std::optional<Attribution> attribution;
};

TEST_F(CompileLinesTest, AreSummedByLineAndUse) {
  const UserCall call = edges.call("/a.py", 7, "f");
  edges.line_sample(50'000'000, LineUse::kTracing, call);
  edges.line_sample(3'000'000, LineUse::kLowering, call);
  edges.line_sample(2'000'000, LineUse::kTracing, call);
  edges.line_sample(4'000'000, LineUse::kTracing, edges.call("/a.py", 8, "f"));
  const CompileLines all = found();
  const std::vector<LineTime>& lines = all.of(0);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].file, "/a.py");
  EXPECT_EQ(lines[0].line, 7);
  EXPECT_EQ(lines[0].function, "f");
  EXPECT_EQ(lines[0].of(LineUse::kTracing), 52'000'000u);
  EXPECT_EQ(lines[0].of(LineUse::kLowering), 3'000'000u);
  EXPECT_EQ(lines[0].sum_ns(), 55'000'000u);
  EXPECT_EQ(lines[1].line, 8);
}

TEST_F(CompileLinesTest, WaitersAreTheHoldersCompile) {
  edges.lock_sample(50'000'000, 1);
  const CompileLines all = found();
  ASSERT_EQ(all.waiters(0).size(), 1u);
  EXPECT_EQ(all.waiters(0)[0].ns, 50'000'000u);
  EXPECT_TRUE(all.of(0).empty());
}

TEST_F(CompileLinesTest, WhatMakesNoSenseIsLeftOut) {
  edges.lock_sample(50'000'000, 99);
  edges.lock_sample(50'000'000, INT32_MIN);
  edges.lock_sample(0, 1);
  edges.line_sample(0, LineUse::kTracing, edges.call("/a.py", 7, "f"));
  edges.compile("");
  edges.line_sample(1, LineUse::kTracing, edges.call("/a.py", 7, "f"));
  const CompileLines all = found();
  EXPECT_TRUE(all.of(0).empty());
  EXPECT_TRUE(all.waiters(0).empty());
}

TEST_F(CompileLinesTest, TextsAndNumbersAreBounded) {
  edges.line_sample(1, LineUse::kLowering,
                    edges.call(std::string(100'000, 'x'), 0xffffffff, "\xff"));
  const CompileLines all = found();
  ASSERT_EQ(all.of(0).size(), 1u);
  EXPECT_EQ(all.of(0)[0].file.size(), 4096u);
  EXPECT_EQ(all.of(0)[0].line, 0);
  EXPECT_EQ(all.of(0)[0].function, "\xef\xbf\xbd");
}

TEST_F(CompileLinesTest, AnIdOtherThanTheOpenOneIsIgnored) {
  edges.compile("4/2");
  edges.line_sample(1, LineUse::kTracing, edges.call("/a.py", 7, "f"));
  EXPECT_TRUE(found().of(0).empty());
}

}  // namespace
}  // namespace dynprof
