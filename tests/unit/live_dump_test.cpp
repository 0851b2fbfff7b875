// `dump`: memory held still, texts of the target taken apart, and what is printed.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "symbolizer/base/text.h"
#include "tests/unit/target_fake_memory.h"
#include "user/cli/cmd_dump.h"
#include "user/live/snapshot_memory.h"
#include "user/live/stack_reader.h"

namespace dynprof {
namespace {

using testing::FakeMemory;
constexpr std::uint64_t kPage = 4096;

TEST(SnapshotMemory, AnswersFromOneMomentUntilItIsRenewed) {
  FakeMemory memory;
  memory.allocate(2 * kPage, 2 * kPage);
  memory.write<std::uint64_t>(2 * kPage + 16, 1);
  SnapshotMemory snapshot(memory);
  EXPECT_EQ(snapshot.read<std::uint64_t>(2 * kPage + 16), 1u);
  memory.write<std::uint64_t>(2 * kPage + 16, 2);
  memory.write<std::uint64_t>(2 * kPage + 24, 3);
  EXPECT_EQ(snapshot.read<std::uint64_t>(2 * kPage + 16), 1u);
  EXPECT_EQ(snapshot.read<std::uint64_t>(2 * kPage + 24), 0u) << "of the same moment";
  int before = memory.reads;
  snapshot.renew();
  EXPECT_EQ(memory.reads, before + 1);
  EXPECT_EQ(snapshot.read<std::uint64_t>(2 * kPage + 16), 2u);
  EXPECT_EQ(snapshot.read<std::uint64_t>(2 * kPage + 24), 3u);
  EXPECT_EQ(memory.reads, before + 1);
}

TEST(SnapshotMemory, ReadsAcrossPagesAndStopsWhereNothingIs) {
  FakeMemory memory;
  memory.allocate(8 * kPage, 2 * kPage);
  memory.write<std::uint64_t>(9 * kPage - 4, 0x1122334455667788);
  SnapshotMemory snapshot(memory);
  EXPECT_EQ(snapshot.read<std::uint64_t>(9 * kPage - 4), 0x1122334455667788u);
  EXPECT_FALSE(snapshot.read<std::uint64_t>(10 * kPage - 4));
  EXPECT_FALSE(snapshot.read<std::uint64_t>(64 * kPage));
  std::vector<std::byte> bytes(16);
  RemoteRange range{10 * kPage - 4, bytes};
  snapshot.read_many(std::span(&range, 1));
  EXPECT_EQ(range.done, 4u);
}

TEST(SnapshotMemory, GivesUpPagesThatAreNoLongerAskedFor) {
  FakeMemory memory;
  memory.allocate(kPage, 8 * kPage);
  SnapshotMemory snapshot(memory);
  EXPECT_TRUE(snapshot.read<std::uint64_t>(kPage));
  EXPECT_TRUE(snapshot.read<std::uint64_t>(2 * kPage));
  snapshot.renew();
  EXPECT_TRUE(snapshot.read<std::uint64_t>(2 * kPage));
  snapshot.renew();  // the first page was not used since
  int before = memory.reads;
  EXPECT_TRUE(snapshot.read<std::uint64_t>(2 * kPage));
  EXPECT_EQ(memory.reads, before);
  EXPECT_TRUE(snapshot.read<std::uint64_t>(kPage));
  EXPECT_EQ(memory.reads, before + 1);
}

TEST(SnapshotMemory, ReadsThroughBeyondItsLimit) {
  FakeMemory memory;
  memory.allocate(kPage, 3000 * kPage);
  SnapshotMemory snapshot(memory);
  for (std::uint64_t page = 1; page <= 3000; ++page) {
    EXPECT_TRUE(snapshot.read<std::uint64_t>(page * kPage));
  }
  int before = memory.reads;
  EXPECT_TRUE(snapshot.read<std::uint64_t>(kPage));
  EXPECT_EQ(memory.reads, before);
  EXPECT_TRUE(snapshot.read<std::uint64_t>(3000 * kPage));
  EXPECT_EQ(memory.reads, before + 1);
}

RemoteStack stack_of(std::initializer_list<RemoteFrame> frames) {
  RemoteStack stack;
  for (const RemoteFrame& frame : frames) stack.frames.push_back({frame, 7});
  return stack;
}

TEST(SameCalls, OnlyALeafMayMove) {
  RemoteStack then = stack_of({{3, 30, 5}, {2, 20, 6}, {1, 10, 7}});
  RemoteStack moved = stack_of({{3, 30, 9}, {2, 20, 6}, {1, 10, 7}});
  EXPECT_TRUE(same_calls(then, moved, 3));
  RemoteStack caller_moved = stack_of({{3, 30, 5}, {2, 20, 8}, {1, 10, 7}});
  EXPECT_FALSE(same_calls(then, caller_moved, 3));
  EXPECT_FALSE(same_calls(then, caller_moved, 2));
  EXPECT_TRUE(same_calls(then, caller_moved, 1));
  RemoteStack deeper = stack_of({{4, 40, 1}, {3, 30, 5}, {2, 20, 6}, {1, 10, 7}});
  EXPECT_TRUE(same_calls(then, deeper, 3));
  EXPECT_FALSE(same_calls(then, deeper, 4));
  RemoteStack other = stack_of({{3, 31, 5}, {2, 20, 6}, {1, 10, 7}});
  EXPECT_FALSE(same_calls(then, other, 3));
  RemoteStack reused = then;
  reused.frames[1].identity = 8;  // another code object at the same address
  EXPECT_FALSE(same_calls(then, reused, 3));
}

TEST(ParseStackTrace, TakesTheCallsOutermostFirst) {
  auto lines = parse_stack_trace(
      "  File \"/a/train.py\", line 40, in step\n    x = model(x)\n        ^^^^^\n"
      "  File \"/a/my \", line 3.py\", line 7, in Block.forward\n    File \"no\", line 1, in x\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], (UserLine{"step", "/a/train.py", 40}));
  EXPECT_EQ(lines[1], (UserLine{"Block.forward", "/a/my \", line 3.py", 7}));
}

TEST(ParseStackTrace, TakesNothingFromOtherText) {
  for (const char* text :
       {"", "\n\n", "File \"a\", line 1, in f", "  File \"a\"", "  File \"a\", line x, in f",
        "  File \"a\", line 0, in f", "  File \"a\", line -3, in f",
        "  File \"a\", line 99999999999, in f", "  File \""}) {
    EXPECT_TRUE(parse_stack_trace(text).empty()) << text;
  }
  EXPECT_EQ(parse_stack_trace("  File \"a\", line 5").size(), 1u) << "a module has no function";
  std::string many;
  for (int i = 1; i <= 500; ++i) many += fmt::format("  File \"a\", line {}, in f\n", i);
  auto lines = parse_stack_trace(many);
  EXPECT_EQ(lines.size(), 64u);
  EXPECT_EQ(lines.back().line, 500) << "the innermost ones are kept";
}

ProcessDump example() {
  ProcessDump dump;
  dump.pid = 4242;
  dump.command = "python train.py";
  dump.python = "3.11.7";
  dump.torch = "2.13.0";
  ThreadDump& thread = dump.threads.emplace_back();
  thread.tid = 4243;
  thread.name = "MainThread";
  thread.state = 'R';
  thread.frames.push_back(
      {"Node.visit", "/venv/lib/python3.11/site-packages/torch/fx/node.py", 17, 9});
  thread.frames.push_back({"main", "/home/me/train.py", 0, 1});
  CompileNow& compile = thread.compile.emplace();
  compile.id = {-1, 0, 1};
  compile.attempt = 1;
  compile.kind = CompileKind::kBackward;
  compile.seconds = 12.34;
  compile.phases = {"entire_backward_compile", "inductor_compile", "GraphLowering.run"};
  compile.phase = Phase::kInductor;
  thread.user_code = {
      UserCode::Kind::kLowering,
      {{"step", "/home/me/train.py", 40}, {"Block.forward", "/home/me/model.py", 17}}};
  return dump;
}

std::string one_line_of(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(display_width(line), 100u) << line;
    out += (line.starts_with("    ") ? line.substr(3) : "\n" + line);
  }
  return out;
}

TEST(DumpText, SaysWhatIsCompiledAndWhere) {
  std::string text = one_line_of(dump_text(example()));
  EXPECT_NE(
      text.find("\nThread 4243 \"MainThread\" running: compiling 0/1 attempt 1 (backward) for "
                "12.3 s, in inductor > inductor_compile > GraphLowering.run; lowering "
                "model.py:17 Block.forward, called from train.py:40 step\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("\n  Node.visit (torch/fx/node.py:17)\n  main (/home/me/train.py)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1 thread, 1 compiling"), std::string::npos) << text;
  EXPECT_EQ(text.find("moved"), std::string::npos);
}

TEST(DumpText, WhatIsNotKnownIsNotSaid) {
  ProcessDump dump = example();
  ThreadDump& thread = dump.threads[0];
  thread.consistent = false;
  thread.compile->seconds.reset();
  thread.compile->kind.reset();
  thread.compile->attempt = -1;
  thread.compile->phases.clear();
  thread.compile->phase.reset();
  thread.user_code = {};
  std::string text = one_line_of(dump_text(dump));
  EXPECT_NE(text.find("running: compiling 0/1 (moved while it was read)\n"), std::string::npos)
      << text;
  nlohmann::ordered_json json = to_json(dump)["threads"][0];
  EXPECT_EQ(json["consistent"], false);
  EXPECT_EQ(json["compile"]["trace_id"], "0/1");
  for (const char* name : {"attempt", "kind", "seconds", "phase", "user_code_is"}) {
    EXPECT_TRUE(json["compile"][name].is_null()) << name;
  }
}

TEST(DumpText, NamesOfTheTargetAreNeverTerminalText) {
  ProcessDump dump = example();
  std::string evil = "a\x1b[2J\n\xff\xed\xb2\x80" + std::string(300, 'x');
  dump.command = dump.threads[0].name = dump.threads[0].comm = evil;
  dump.torch = evil;
  dump.threads[0].frames.assign(3, {evil, evil, 1, 1});
  dump.threads[0].compile->phases.assign(9, evil);
  dump.threads[0].user_code.lines.assign(9, {evil, evil, 5});
  std::string text = dump_text(dump);
  one_line_of(text);
  for (char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
  std::string json = to_json(dump).dump();  // throws on bytes that are no UTF-8
  EXPECT_NE(json.find("udc80"), std::string::npos);
}

TEST(DumpText, ShowsOnlySoManyThreads) {
  ProcessDump dump = example();
  dump.threads.assign(1000, dump.threads[0]);
  dump.threads_dropped = 5;
  std::string text = dump_text(dump);
  EXPECT_NE(text.find("\n705 more threads"), std::string::npos);
  EXPECT_EQ(to_json(dump)["threads"].size(), 1000u);
}

}  // namespace
}  // namespace dynprof
