// A decompiler that is missing, of another version, fails, never ends or writes too much.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "symbolizer/export/decompiler.h"
#include "symbolizer/python/pyc_magic.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

std::string pyc(std::uint16_t magic) {
  std::string file = {static_cast<char>(magic & 0xff), static_cast<char>(magic >> 8), '\r', '\n'};
  return file + std::string(12, '\0') + "N";
}

struct DecompilerTest : testing::Test {
  fs::path folder;
  ProgramLimits limits = DecompilerLimits().program;

  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "decompiler-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }
  // In place of a Python.
  std::string python(const std::string& script, const std::string& name = "python3.11") const {
    std::ofstream(folder / name) << "#!/bin/sh\n" << script << "\n";
    ::chmod((folder / name).c_str(), 0755);
    return (folder / name).string();
  }
  std::string why(const std::string& script) const {
    auto text = decompile(python(script), pyc(3495), limits);
    return text ? "" : text.error().what;
  }
};

TEST_F(DecompilerTest, ItsOutputIsTheSource) {
  auto text = decompile(python("echo \"# $1 $2 $3\"; exec tail -c 1"), pyc(3495), limits);
  ASSERT_TRUE(text) << text.error().what;
  EXPECT_EQ(*text, "# -I -B -c\nN");
}

TEST_F(DecompilerTest, SaysWhyThereIsNone) {
  EXPECT_EQ(why("exit 3"), "python3.11 has no depyf");
  EXPECT_EQ(why("exit 4"), "python3.11 is of another version than the target's CPython");
  EXPECT_EQ(why("exit 5"), "depyf cannot decompile it");
  EXPECT_EQ(why("exit 1"), "python3.11 failed with status 1");
  EXPECT_EQ(why("kill -SEGV $$"), "python3.11 was ended by signal 11");
  EXPECT_EQ(why("exit 0"), "depyf wrote nothing");
  auto missing = decompile((folder / "none").string(), pyc(3495), limits);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().what, "none could not be started");
}

TEST_F(DecompilerTest, IsLimited) {
  limits.time = std::chrono::milliseconds(200);
  EXPECT_EQ(why("exec sleep 100"), "python3.11 took too long and was stopped");
  limits = DecompilerLimits().program;
  limits.output_bytes = 1000;
  EXPECT_NE(why("exec head -c 100000 /dev/zero"), "");
}

TEST_F(DecompilerTest, ThePythonIsThatOfTheFile) {
  python("", "python3.13");
  auto found = find_decompiler(pyc(3571), "", folder.string());
  ASSERT_TRUE(found) << found.error().what;
  EXPECT_EQ(*found, (folder / "python3.13").string());
  EXPECT_EQ(*find_decompiler(pyc(3571), "/my/python", ""), "/my/python");
  EXPECT_EQ(find_decompiler(pyc(3495), "", folder.string()).error().what,
            "python3.11 not found in PATH");
  EXPECT_FALSE(find_decompiler(pyc(1), "", folder.string()));
  EXPECT_FALSE(find_decompiler("", "/my/python", ""));
  EXPECT_EQ(python_of_pyc(pyc(3439)), python_version(3, 10));
}

}  // namespace
}  // namespace dynprof
