// The limits of all call graphs of one output directory together.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "user/cli/call_graphs.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

struct CallGraphsTest : testing::Test {
  fs::path folder;
  std::string path_before;
  std::optional<OutputDirectory> out;
  Terminal quiet{true};

  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "call-graphs-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    auto made = OutputDirectory::create((folder / "out").string());
    ASSERT_TRUE(made);
    out.emplace(std::move(*made));
    for (const char* stem : {"a", "b", "c"})
      std::ofstream(folder / "out" / (std::string(stem) + ".profile")) << stem;
    program("dot", "exec cat");
    path_before = std::getenv("PATH");
    ::setenv("PATH", (folder.string() + ":" + path_before).c_str(), 1);
  }
  void TearDown() override {
    ::setenv("PATH", path_before.c_str(), 1);
    fs::remove_all(folder);
  }
  void program(const std::string& name, const std::string& script) const {
    std::ofstream(folder / name) << "#!/bin/sh\n" << script << "\n";
    ::chmod((folder / name).c_str(), 0755);
  }
  bool drawn(const std::string& stem) const { return fs::exists(folder / "out" / (stem + ".svg")); }
};

TEST_F(CallGraphsTest, EachProfileGetsItsPicture) {
  program("gprof2dot", "exec cat /dev/stdin");
  CallGraphs graphs(*out, quiet, {});
  ASSERT_TRUE(graphs.tools_found());
  for (const char* stem : {"a", "b", "c"}) graphs.draw(stem);
  EXPECT_TRUE(graphs.finish());
  EXPECT_EQ(graphs.drawn(), 3u);
  std::string text;
  std::ifstream(folder / "out" / "b.svg") >> text;
  EXPECT_EQ(text, "b");
}

TEST_F(CallGraphsTest, TheirNumberIsLimited) {
  program("gprof2dot", "exec cat /dev/stdin");
  CallGraphs graphs(*out, quiet, {.count = 2, .time = std::chrono::seconds(60)});
  for (const char* stem : {"a", "b", "c"}) graphs.draw(stem);
  EXPECT_FALSE(graphs.finish());
  EXPECT_EQ(graphs.drawn(), 2u);
  EXPECT_TRUE(drawn("a") && drawn("b") && !drawn("c"));
}

TEST_F(CallGraphsTest, TheirTimeIsLimitedAsAWhole) {
  program("gprof2dot", "exec sleep 100");
  const auto began = std::chrono::steady_clock::now();
  CallGraphs graphs(*out, quiet, {.count = 10, .time = std::chrono::milliseconds(300)});
  for (const char* stem : {"a", "b", "c"}) graphs.draw(stem);
  EXPECT_FALSE(graphs.finish());
  EXPECT_EQ(graphs.drawn(), 0u);
  EXPECT_FALSE(drawn("a") || drawn("b") || drawn("c"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

}  // namespace
}  // namespace dynprof
