// Which compile each child process was for, and what a command line says.
#include "symbolizer/attribution/process_tree.h"

#include <gtest/gtest.h>

#include "symbolizer/attribution/process_command.h"
#include "tests/unit/fake_edges.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::int32_t kTarget = 100;

std::string line(std::initializer_list<std::string_view> arguments) {
  std::string text;
  for (std::string_view argument : arguments) text += std::string(argument) + '\0';
  text.pop_back();
  return text;
}

// A target with two threads that compile 0/0 (100 ms) and then 1/0.
class ProcessTreeTest : public testing::Test {
 protected:
  ProcessTreeTest()
      : main_(fake.thread(kTarget, kTarget)),
        other_(fake.thread(kTarget, 101)),
        edges_(fake, main_),
        other_edges_(fake, other_) {
    there(kTarget, 0);
    edges_.watch();
    other_edges_.watch();
    begin_ = fake.now();
    edges_.forward("0/0");
    end_ = fake.now();
    fake.pass_ms(100);
  }

  void there(std::int32_t pid, std::int32_t parent, std::string_view command = "") {
    life({.time_ns = fake.meta().start_ns,
          .pid = pid,
          .kind = LifeKind::kThere,
          .parent_pid = parent,
          .command_line = fake.string(command)});
  }
  void fork(std::uint64_t time_ns, std::int32_t pid, std::int32_t parent, std::int32_t tid) {
    life({.time_ns = time_ns,
          .pid = pid,
          .parent_pid = parent,
          .parent_tid = tid,
          .comm = fake.string("python3")});
  }
  void exec(std::uint64_t time_ns, std::int32_t pid, std::string_view command) {
    const auto arguments = split_arguments(command);
    life({.time_ns = time_ns,
          .pid = pid,
          .kind = LifeKind::kExec,
          .exe = fake.string(arguments.empty() ? "" : arguments[0]),
          .command_line = fake.string(command)});
  }
  void exit(std::uint64_t time_ns, std::int32_t pid, std::uint64_t cpu_ns, std::int32_t code = 0) {
    life({.time_ns = time_ns,
          .pid = pid,
          .kind = LifeKind::kExit,
          .cpu_ns = cpu_ns,
          .exit_code = code});
  }
  void reaped(std::uint64_t time_ns, std::int32_t pid, std::uint64_t cpu_ns) {
    life({.time_ns = time_ns, .pid = pid, .kind = LifeKind::kReaped, .cpu_ns = cpu_ns});
  }
  void life(const ProcessLife& row) { fake.edit_tables().lives.push_back(row); }

  FakeRecording fake;
  ThreadId main_, other_;
  FakeEdges edges_, other_edges_;
  std::uint64_t begin_ = 0, end_ = 0;
};

TEST_F(ProcessTreeTest, TheForkingThreadsCompileAndItsDescendants) {
  fork(begin_ + 10 * kMs, 200, kTarget, kTarget);
  exec(begin_ + 11 * kMs, 200, line({"/usr/bin/g++", "-o", "x.o", "/tmp/main.cpp"}));
  fork(begin_ + 12 * kMs, 201, 200, 200);
  exec(begin_ + 13 * kMs, 201, line({"/usr/lib/cc1plus", "-quiet", "/tmp/main.cpp"}));
  exit(begin_ + 50 * kMs, 201, 30 * kMs);
  reaped(begin_ + 51 * kMs, 201, 33 * kMs);
  exit(begin_ + 60 * kMs, 200, 5 * kMs, 256);
  reaped(begin_ + 61 * kMs, 200, 6 * kMs);
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  ASSERT_EQ(tree.all().size(), 2u);
  const ChildProcess& driver = tree.all()[0];
  EXPECT_EQ(driver.rule, JoinRule::kForkingThread);
  EXPECT_EQ(driver.compile, 0u);
  EXPECT_EQ(driver.exit_status, 256);
  EXPECT_TRUE(driver.cpu_final);
  EXPECT_EQ(driver.images.size(), 2u);
  EXPECT_EQ(tree.title(driver), "g++ main.cpp");
  EXPECT_EQ(tree.title(driver, driver.images[0]), "python3");
  EXPECT_EQ(tree.all()[1].rule, JoinRule::kParent);
  EXPECT_EQ(tree.title(tree.all()[1]), "cc1plus main.cpp");
  EXPECT_EQ(tree.cpu_ns(0), 39 * kMs);
  EXPECT_EQ(tree.of(0), (std::vector<ProcessIndex>{0, 1}));
}

TEST_F(ProcessTreeTest, UnattributedOutsideCompiles) {
  fork(end_ + 10 * kMs, 200, kTarget, kTarget);
  exit(end_ + 20 * kMs, 200, 7 * kMs);
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  EXPECT_EQ(tree.all()[0].rule, JoinRule::kNone);
  EXPECT_EQ(tree.all()[0].compile, kNoCompile);
  EXPECT_EQ(tree.other_cpu_ns(), 7 * kMs);
  EXPECT_EQ(tree.cpu_ns(0), 0u);
}

TEST_F(ProcessTreeTest, APoolThreadForksForTheOnlyCompile) {
  fork(begin_ + 10 * kMs, 200, kTarget, 150);
  exit(begin_ + 20 * kMs, 200, 7 * kMs);
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  EXPECT_EQ(tree.all()[0].rule, JoinRule::kOnlyCompile);
  EXPECT_EQ(tree.cpu_ns(0), 7 * kMs);
}

TEST_F(ProcessTreeTest, OfTwoOpenCompilesNoneIsGuessed) {
  const std::uint64_t begin = fake.now();
  edges_.compile("1/0");
  edges_.begin("dynamo");
  other_edges_.compile("2/0");
  other_edges_.begin("dynamo");
  fake.pass_ms(50);
  other_edges_.end();
  edges_.end();
  fork(begin + 10 * kMs, 200, kTarget, 150);  // a pool thread: for either
  fork(begin + 11 * kMs, 201, kTarget, 101);  // the second one itself
  fork(begin + 12 * kMs, 202, 200, 200);      // of the first child
  exit(begin + 20 * kMs, 200, 7 * kMs);
  exit(begin + 20 * kMs, 201, 9 * kMs);
  exit(begin + 20 * kMs, 202, 2 * kMs);
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  EXPECT_EQ(tree.all()[0].rule, JoinRule::kShared);
  EXPECT_EQ(tree.all()[2].rule, JoinRule::kShared);
  EXPECT_EQ(tree.shared_cpu_ns(), 9 * kMs);
  const ChildProcess& second = tree.all()[1];
  ASSERT_EQ(second.rule, JoinRule::kForkingThread);
  EXPECT_EQ(attribution.compiles()[second.compile].id.text(), "2/0");
}

TEST_F(ProcessTreeTest, WorkersByTheTimeOfTheCompileTheyWorkFor) {
  there(300, kTarget,
        line({"python", "/x/torch/_inductor/compile_worker/__main__.py", "--workers=2",
              "--parent=100"}));
  fork(begin_ - 1, 301, 300, 300);
  ThreadId worker = fake.thread(301, 301);
  fake.sample_at(begin_ + 20 * kMs, worker, 0);
  fake.sample_at(begin_ + 30 * kMs, worker, 0);
  fake.sample_at(end_ + 30 * kMs, worker, 0);
  fork(begin_ + 40 * kMs, 302, 301, 301);
  exec(begin_ + 41 * kMs, 302, line({"ptxas", "k.ptx"}));
  exit(begin_ + 50 * kMs, 302, 4 * kMs);
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  ASSERT_EQ(tree.all().size(), 3u);
  EXPECT_TRUE(tree.all()[0].worker);
  EXPECT_TRUE(tree.all()[1].worker) << "a fork has the command line of its parent";
  EXPECT_EQ(tree.all()[2].rule, JoinRule::kWorker);
  EXPECT_EQ(tree.title(tree.all()[2]), "ptxas k.ptx");
  ASSERT_EQ(tree.worker_shares().size(), 1u);
  EXPECT_EQ(tree.cpu_ns(0), 24 * kMs);
}

TEST_F(ProcessTreeTest, NumbersUsedAgainAreOtherProcesses) {
  fork(begin_ + 10 * kMs, 200, kTarget, kTarget);
  exit(begin_ + 20 * kMs, 200, 3 * kMs);
  fork(begin_ + 21 * kMs, 200, kTarget, kTarget);
  reaped(begin_ + 22 * kMs, 200, 4 * kMs);  // of the first one
  exit(begin_ + 30 * kMs, 200, 8 * kMs);
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  ASSERT_EQ(tree.all().size(), 2u);
  EXPECT_EQ(tree.all()[0].cpu_ns, 4 * kMs);
  EXPECT_TRUE(tree.all()[0].cpu_final);
  EXPECT_EQ(tree.all()[1].cpu_ns, 8 * kMs);
  EXPECT_FALSE(tree.all()[1].cpu_final);
}

TEST_F(ProcessTreeTest, RowsThatMakeNoSense) {
  exec(begin_, 900, line({"unrelated"}));
  exit(begin_, 901, 1);
  reaped(begin_, 902, 1);
  fork(begin_ + 1, 903, 903, 903);  // its own parent
  fork(begin_ + 2, 904, 903, 1);
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  ASSERT_EQ(tree.all().size(), 2u);
  EXPECT_EQ(tree.all()[0].parent, kNoChild);
  for (int i = 0; i < 1000; ++i) exec(begin_ + 3, 903, line({"again"}));
  EXPECT_LE(ProcessTree(attribution).all()[0].images.size(), 64u);
}

TEST_F(ProcessTreeTest, WaitsAreWhereTheThreadWasOffItsCpu) {
  fork(begin_ + 10 * kMs, 200, kTarget, kTarget);
  exit(begin_ + 60 * kMs, 200, 3 * kMs);
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  const Interval compile{begin_, end_};
  const ChildProcess& child = tree.all()[0];
  EXPECT_EQ(ProcessTree::overlap_ns(child, compile, {}), 0u);
  EXPECT_EQ(ProcessTree::overlap_ns(child, compile, {{0, UINT64_MAX}}), 50 * kMs);
  EXPECT_EQ(
      ProcessTree::overlap_ns(
          child, compile, {{begin_, begin_ + 15 * kMs}, {begin_ + 50 * kMs, begin_ + 90 * kMs}}),
      15 * kMs);
  EXPECT_EQ(ProcessTree::overlap_ns(child, {begin_, begin_ + 30 * kMs}, {{0, UINT64_MAX}}),
            20 * kMs);
}

TEST(ProcessCommand, ArgumentsSourcesAndTitles) {
  EXPECT_TRUE(split_arguments("").empty());
  EXPECT_EQ(split_arguments(line({"a", "", "b"})).size(), 3u);
  EXPECT_LE(split_arguments(std::string(100'000, '\0')).size(), kMaxArguments);
  EXPECT_EQ(sources_of(line({"g++", "a.cpp", "-o", "b.o", "-c", ".cpp", "-x.cpp"})),
            (std::vector<std::string_view>{"a.cpp"}));
  EXPECT_EQ(sources_of(line({"cc1plus", "-include", "p.h", "a.cpp"})),
            (std::vector<std::string_view>{"a.cpp"}));
  EXPECT_EQ(command_title("", "/usr/bin/sleep", "sleep"), "sleep");
  EXPECT_EQ(command_title("", "", "comm"), "comm");
  EXPECT_EQ(command_title(line({"/usr/bin/g++", "/a/x.cpp"}), "", "cc"), "g++ x.cpp");
  EXPECT_EQ(command_title(line({"ld", "/lib/crti.o", "x.o"}), "", ""), "ld x.o");
  EXPECT_EQ(command_title(line({"g++", std::string(52, 'c') + ".main.cpp"}), "", ""),
            "g++ cccccccccc...ccccccc.main.cpp");
  EXPECT_LE(command_title(std::string(5000, 'x'), "", "").size(), 200u);
}

TEST(ProcessCommand, WorkersAreRecognized) {
  const char* script = "/v/site-packages/torch/_inductor/compile_worker/__main__.py";
  EXPECT_EQ(worker_parent(line({"python", script, "--parent=77"})), 77);
  EXPECT_EQ(worker_parent(line({"python", script, "--parent=-5"})), 0);
  EXPECT_EQ(worker_parent(line({"python", script, "--parent=77x"})), 0);
  EXPECT_EQ(worker_parent(line({"python", script, "--parent=99999999999999"})), 0);
  EXPECT_EQ(worker_parent(line({"python", "other.py", "--parent=77"})), 0);
  EXPECT_EQ(worker_parent(""), 0);
}

TEST(ProcessCommand, ThreadsHaveTheNamesThatPythonHas) {
  FakeRecording fake;
  fake.thread(100, 100, "python3");
  fake.thread(100, 101, "python3");
  fake.thread(100, 102, "pt_autograd_0");
  fake.thread(100, 103, "python3");
  auto fact = [&](const char* body) {
    fake.edit_tables().facts.push_back(
        {.pid = 100, .kind = fake.string("threads"), .body = fake.blob(body)});
  };
  fact(
      R"json({"100": "MainThread", "101": "old", "102": "Thread-1 (backward)", "-5": "x", "y": 3})json");
  fact(R"({"101": "serving\n", "103": 7})");
  fact("{");
  EXPECT_EQ(thread_commands(fake.tables()),
            (std::vector<std::string>{"python3", "serving\n", "pt_autograd_0", "python3"}));
}

TEST(ProcessCommand, LongArgumentsAreShortened) {
  const auto kept = shortened_arguments(line({std::string(500, 'a'), "b", "c"}), 300);
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0].size(), 203u);
  EXPECT_EQ(shortened_arguments(line({"a", std::string(100, 'b'), "c"}), 20),
            (std::vector<std::string>{"a", "..."}));
}

}  // namespace
}  // namespace dynprof
