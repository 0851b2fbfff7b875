#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "symbolizer/export/export.h"
#include "tests/unit/fake_training.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

class ExportFormats : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "dynprof-export-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    training.whole_run();
    attribution = std::make_unique<Attribution>(training);
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string slurp(const std::string& name) {
    std::ifstream in(folder / name, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  Result<void> write(std::string_view format, const std::string& name, std::string_view id = {}) {
    return export_recording(Analysis(*attribution), format, {folder / name}, id);
  }
  fs::path folder;
  FakeTraining training;
  std::unique_ptr<Attribution> attribution;
};

TEST_F(ExportFormats, TheTableIsWhatTheCommandLinePromises) {
  std::set<std::string> names;
  for (const ExportFormat& format : export_formats()) {
    EXPECT_TRUE(names.insert(format.name).second);
    EXPECT_NE(format.write, nullptr);
    EXPECT_EQ(format.extension[0], '.');
    EXPECT_LE(std::string_view(format.description).size(), 85u) << "two columns of --help";
  }
  for (const char* promised :
       {"pstats", "chrome", "folded", "speedscope", "perf-script", "svg", "dot", "json"}) {
    EXPECT_TRUE(names.contains(promised)) << promised;
  }
}

TEST_F(ExportFormats, EachWritesOneNewFileAndNeverOverwrites) {
  for (const ExportFormat& format : export_formats()) {
    if (std::string_view(format.name) == "svg") continue;  // needs dot: tests/compat/test_trace.py
    std::string name = std::string("all") + format.extension;
    auto done = write(format.name, name);
    ASSERT_TRUE(done) << format.name << ": " << done.error().what;
    std::string text = slurp(name);
    EXPECT_GT(text.size(), 100u) << format.name;
    auto again = write(format.name, name);
    ASSERT_FALSE(again) << format.name;
    EXPECT_EQ(again.error().errno_value, EEXIST);
    EXPECT_EQ(slurp(name), text);
  }
}

TEST_F(ExportFormats, OneCompileIsLessThanEverything) {
  for (const char* format : {"pstats", "chrome", "folded", "speedscope", "perf-script"}) {
    std::string all = std::string(format) + ".all", one = std::string(format) + ".one";
    ASSERT_TRUE(write(format, all)) << format;
    ASSERT_TRUE(write(format, one, "backward 1/0")) << format;
    EXPECT_NE(slurp(one).find("get_or_compile"), std::string::npos) << format;
    EXPECT_EQ(slurp(one).find("transform"), std::string::npos) << format;
    EXPECT_LT(slurp(one).size(), slurp(all).size()) << format;
  }
}

TEST_F(ExportFormats, AnIdWithSeveralCompilesIsTheirSum) {
  ASSERT_TRUE(write("folded", "both", "1/0"));
  std::istringstream lines(slurp("both"));
  std::uint64_t samples = 0;
  for (std::string line; std::getline(lines, line);) {
    samples += std::stoull(line.substr(line.rfind(' ')));
  }
  EXPECT_EQ(samples, 12u + 12 + 5);  // two attempts and the backward
}

TEST_F(ExportFormats, MistakesAreNamedAndLeaveNothing) {
  auto unknown = write("svg\x1b[1m", "x");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().exit_code, 2);
  EXPECT_EQ(unknown.error().what, "unknown format 'svg\\x1b[1m'");
  EXPECT_NE(unknown.error().hint.find("speedscope"), std::string::npos);

  auto no_compile = write("chrome", "x", "9/9");
  ASSERT_FALSE(no_compile);
  EXPECT_EQ(no_compile.error().what, "no compile 9/9");

  auto no_folder = write("folded", "none/x");
  ASSERT_FALSE(no_folder);
  EXPECT_EQ(no_folder.error().errno_value, ENOENT);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(ExportFormats, TheLedgerOfOneId) {
  ASSERT_TRUE(write("json", "one.json", "1/0"));
  ASSERT_TRUE(write("json", "all.json"));
  std::string one = slurp("one.json"), all = slurp("all.json");
  EXPECT_NE(one.find("\"1/0\""), std::string::npos);
  EXPECT_EQ(one.find("\"0/0\""), std::string::npos);
  EXPECT_LT(one.size(), all.size());
}

TEST_F(ExportFormats, WithoutThePicturesProgramsNoFileIsMade) {
  const char* before = std::getenv("PATH");
  std::string kept = before ? before : "";
  ::setenv("PATH", "/nonexistent", 1);
  auto done = write("svg", "graph.svg");
  ::setenv("PATH", kept.c_str(), 1);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().what, "no call graphs: dot (package graphviz) not found in PATH");
  EXPECT_TRUE(fs::is_empty(folder));
}

}  // namespace
}  // namespace dynprof
