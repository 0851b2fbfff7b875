#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "symbolizer/base/unique_fd.h"
#include "symbolizer/export/callgraph.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

struct Callgraph : testing::Test {
  fs::path directory;
  CallgraphTools tools;
  CallgraphOptions options;

  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "callgraph-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory = name;
    std::ofstream(directory / "a profile") << "profile\n";
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
    UniqueFd profile(::open((directory / "a profile").c_str(), O_RDONLY));
    return write_callgraph(tools, profile.get(), svg.get(), options);
  }
  std::string svg() const {
    std::ostringstream text;
    text << std::ifstream(directory / "out.svg").rdbuf();
    return text.str();
  }
};

TEST_F(Callgraph, ArgumentsAreTorchsAndTheSvgIsDotsOutput) {
  tools.gprof2dot = program("gprof2dot", R"(for a; do echo "[$a]"; done)");
  tools.dot = program("dot", R"(echo "<svg $*>"; cat)");
  Result<void> result = run();
  ASSERT_TRUE(result) << result.error().what;
  EXPECT_EQ(svg(),
            "<svg -Tsvg>\n[-f]\n[pstats]\n[--node-label=total-time-percentage]\n"
            "[--node-label=self-time-percentage]\n[--node-label=total-time]\n[/dev/stdin]\n");
}

TEST_F(Callgraph, TheProfileIsReadThroughADescriptor) {
  tools.gprof2dot = program("gprof2dot", R"(for a; do last=$a; done; cat "$last")");
  tools.dot = program("dot", "cat");
  Result<void> result = run();
  ASSERT_TRUE(result) << result.error().what;
  EXPECT_EQ(svg(), "profile\n");
}

TEST_F(Callgraph, WhatWritesTooMuchIsStopped) {
  options.output_bytes = 4096;
  tools.gprof2dot = program("gprof2dot", "exec head -c 100000 /dev/zero");
  tools.dot = program("dot", "exec cat");
  EXPECT_FALSE(run());
  EXPECT_EQ(fs::file_size(directory / "out.svg"), 4096u);
}

TEST_F(Callgraph, AFailureSaysWhoseItWas) {
  tools.gprof2dot = program("gprof2dot", "exit 3");
  tools.dot = program("dot", "cat");
  EXPECT_EQ(run().error().what, "gprof2dot failed with status 3");
  tools.gprof2dot = program("gprof2dot", "echo x");
  tools.dot = program("dot", "cat; kill -9 $$");
  EXPECT_EQ(run().error().what, "dot was ended by signal 9");
  tools.dot = "/nonexistent/dot";
  EXPECT_TRUE(run().error().what.ends_with("dot could not be started"));
}

TEST_F(Callgraph, WhatHangsIsStopped) {
  options.timeout = std::chrono::milliseconds(200);
  tools.gprof2dot =
      program("gprof2dot", "echo $$ > " + (directory / "pid").string() + "; exec sleep 1000");
  tools.dot = program("dot", "cat");
  EXPECT_TRUE(run().error().what.starts_with("gprof2dot took too long"));
  pid_t pid = 0;
  std::ifstream(directory / "pid") >> pid;
  if (pid > 0) {
    EXPECT_NE(::kill(pid, 0), 0) << "it still runs";
  }
}

TEST_F(Callgraph, NothingOfOursIsInherited) {
  UniqueFd secret(::open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  tools.gprof2dot = program("gprof2dot", "ls /proc/self/fd | grep -v '^[0-3]$'; true");
  tools.dot = program("dot", "cat");
  ASSERT_GT(secret.get(), 2);
  ASSERT_EQ(::fcntl(secret.get(), F_DUPFD, 77), 77);
  EXPECT_TRUE(run());
  ::close(77);
  EXPECT_EQ(svg(), "");
}

TEST_F(Callgraph, ProgramsAreFoundInPath) {
  program("gprof2dot", "true");
  std::ofstream(directory / "dot") << "not executable";
  fs::create_directory(directory / "sub");
  fs::create_directory(directory / "sub" / "dot");  // a directory is no program
  std::string path =
      "relative::/nonexistent:" + (directory / "sub").string() + ":" + directory.string();
  EXPECT_EQ(find_program(path, "gprof2dot"), (directory / "gprof2dot").string());
  EXPECT_EQ(find_program(path, "dot"), "");
  EXPECT_EQ(find_program("", "dot"), "");
  Result<CallgraphTools> missing = find_callgraph_tools(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().what, "no call graphs: dot (package graphviz) not found in PATH");
  program("dot", "true");
  EXPECT_TRUE(find_callgraph_tools(path));
  EXPECT_EQ(find_callgraph_tools("/nonexistent").error().what,
            "no call graphs: gprof2dot and dot not found in PATH");
}

}  // namespace
}  // namespace dynprof
