#include "symbolizer/export/graphviz.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

struct Graphviz : testing::Test {
  fs::path directory;
  std::string dot;
  DrawLimits limits;

  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "graphviz-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory = name;
  }
  void TearDown() override { fs::remove_all(directory); }

  std::string program(const std::string& name, const std::string& script) {
    fs::path path = directory / name;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    ::chmod(path.c_str(), 0755);
    return path.string();
  }
  Result<void> run() {
    UniqueFd svg(::open((directory / "out.svg").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600));
    return draw_svg(dot, "digraph {}\n", svg.get(), limits);
  }
  std::string svg() const {
    std::ostringstream text;
    text << std::ifstream(directory / "out.svg").rdbuf();
    return text.str();
  }
};

TEST_F(Graphviz, TheGraphIsDotsInputAndTheSvgItsOutput) {
  dot = program("dot", R"(echo "<svg $*>"; cat)");
  Result<void> result = run();
  ASSERT_TRUE(result) << result.error().what;
  EXPECT_EQ(svg(), "<svg -Tsvg>\ndigraph {}\n");
}

TEST_F(Graphviz, AProgramThatWritesTooMuchIsStopped) {
  limits.output_bytes = 4096;
  dot = program("dot", "exec head -c 100000 /dev/zero");
  EXPECT_FALSE(run());
  EXPECT_EQ(fs::file_size(directory / "out.svg"), 4096u);
}

TEST_F(Graphviz, AFailureIsNamed) {
  dot = program("dot", "exit 3");
  EXPECT_EQ(run().error().what, "dot failed with status 3");
  dot = program("dot", "cat; kill -9 $$");
  EXPECT_EQ(run().error().what, "dot was ended by signal 9");
  dot = "/nonexistent/dot";
  EXPECT_EQ(run().error().what, "dot could not be started");
}

TEST_F(Graphviz, AProgramThatHangsIsStopped) {
  limits.time = std::chrono::milliseconds(200);
  dot = program("dot", "echo $$ > " + (directory / "pid").string() + "; exec sleep 1000");
  EXPECT_EQ(run().error().what, "dot took too long and was stopped");
  pid_t pid = 0;
  std::ifstream(directory / "pid") >> pid;
  if (pid > 0) {
    EXPECT_NE(::kill(pid, 0), 0) << "it still runs";
  }
}

// Not a process that has ended and is not reaped yet.
bool runs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.substr(name_end).find(") Z") != 0;
}

TEST_F(Graphviz, WhatAProgramStartedEndsWithIt) {
  const std::string pid_file = (directory / "pid").string();
  auto expect_none_left = [&] {
    pid_t pid = 0;
    std::ifstream(pid_file) >> pid;
    ASSERT_GT(pid, 0);
    // It ends a moment after the signal. Who reaps it, and when, is not ours to say.
    for (int tries = 0; tries < 200 && runs(pid); ++tries) ::usleep(10'000);
    EXPECT_FALSE(runs(pid));
    ::kill(pid, SIGKILL);
  };
  dot = program("dot", "sleep 1000 & echo $! > " + pid_file);
  EXPECT_TRUE(run());
  expect_none_left();
  limits.time = std::chrono::milliseconds(200);
  dot = program("dot", "sleep 1000 & echo $! > " + pid_file + "; wait");
  EXPECT_EQ(run().error().what, "dot took too long and was stopped");
  expect_none_left();
}

TEST_F(Graphviz, DescriptorsAreNotInherited) {
  UniqueFd secret(::open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  dot = program("dot", "ls /proc/self/fd | grep -v '^[0-3]$'; true");
  ASSERT_GT(secret.get(), 2);
  ASSERT_EQ(::fcntl(secret.get(), F_DUPFD, 77), 77);
  EXPECT_TRUE(run());
  ::close(77);
  EXPECT_EQ(svg(), "");
}

TEST_F(Graphviz, ProgramsAreFoundInPath) {
  std::ofstream(directory / "dot") << "not executable";
  fs::create_directory(directory / "sub");
  fs::create_directory(directory / "sub" / "dot");  // a directory is no program
  std::string path =
      "relative::/nonexistent:" + (directory / "sub").string() + ":" + directory.string();
  EXPECT_EQ(find_program(path, "dot"), "");
  EXPECT_EQ(find_program("", "dot"), "");
  Result<std::string> missing = find_dot(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().what, "no call graphs: dot (package graphviz) not found in PATH");
  program("dot", "true");
  EXPECT_EQ(*find_dot(path), (directory / "dot").string());
}

}  // namespace
}  // namespace dynprof
