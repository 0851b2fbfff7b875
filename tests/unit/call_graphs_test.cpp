// The limits of all call graphs of one output directory together.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "user/cli/call_graphs.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

struct CallGraphsTest : testing::Test {
  fs::path folder;
  std::optional<OutputDirectory> out;
  Terminal quiet{true};

  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "call-graphs-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    auto made = OutputDirectory::create((folder / "out").string());
    ASSERT_TRUE(made);
    out.emplace(std::move(*made));
  }
  void TearDown() override { fs::remove_all(folder); }
  // In place of Graphviz' dot.
  std::string dot(const std::string& script) const {
    std::ofstream(folder / "dot") << "#!/bin/sh\n" << script << "\n";
    ::chmod((folder / "dot").c_str(), 0755);
    return (folder / "dot").string();
  }
  static void draw_three(CallGraphs& graphs) {
    for (const char* stem : {"a", "b", "c"})
      graphs.draw(stem, [stem] { return std::string(stem); });
    graphs.finish();
  }
  bool drawn(const std::string& stem) const { return fs::exists(folder / "out" / (stem + ".svg")); }
};

TEST_F(CallGraphsTest, EachGraphGetsItsPicture) {
  CallGraphs graphs(*out, dot("exec cat"), quiet, {});
  draw_three(graphs);
  EXPECT_EQ(graphs.drawn(), 3u);
  std::string text;
  std::ifstream(folder / "out" / "b.svg") >> text;
  EXPECT_EQ(text, "b");
}

TEST_F(CallGraphsTest, TheirNumberIsLimited) {
  CallGraphs graphs(*out, dot("exec cat"), quiet, {.count = 2, .time = std::chrono::seconds(60)});
  draw_three(graphs);
  EXPECT_EQ(graphs.drawn(), 2u);
  EXPECT_TRUE(drawn("a") && drawn("b") && !drawn("c"));
}

TEST_F(CallGraphsTest, TheirTimeIsLimitedAsAWhole) {
  const auto began = std::chrono::steady_clock::now();
  CallGraphs graphs(*out, dot("exec sleep 100"), quiet,
                    {.count = 10, .time = std::chrono::milliseconds(300)});
  draw_three(graphs);
  EXPECT_EQ(graphs.drawn(), 0u);
  EXPECT_FALSE(drawn("a") || drawn("b") || drawn("c"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

TEST_F(CallGraphsTest, AFailureLeavesNoFileAndTheNextIsDrawn) {
  CallGraphs graphs(*out, dot("read -r name; echo half; test \"$name\" != b"), quiet, {});
  draw_three(graphs);
  EXPECT_EQ(graphs.drawn(), 2u);
  EXPECT_TRUE(drawn("a") && !drawn("b") && drawn("c"));
}

}  // namespace
}  // namespace dynprof
