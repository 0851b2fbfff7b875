// `dump`: memory held still, texts of the target taken apart, and what is printed.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "symbolizer/base/text.h"
#include "tests/unit/target_fake_memory.h"
#include "user/cli/cmd_dump.h"
#include "user/cli/dump_again.h"
#include "user/live/stack_reader.h"
#include "user/target/snapshot_memory.h"

namespace dynprof {
namespace {

using testing::FakeMemory;
constexpr std::uint64_t kPage = 4096;

// By the bytes of a block.
class Snapshots : public ::testing::TestWithParam<std::size_t> {};

INSTANTIATE_TEST_SUITE_P(Blocks, Snapshots, ::testing::Values(4096, 512));

TEST_P(Snapshots, AnswersFromOneMomentUntilItIsRenewed) {
  FakeMemory memory;
  memory.allocate(2 * kPage, 2 * kPage);
  memory.write<std::uint64_t>(2 * kPage + 16, 1);
  SnapshotMemory snapshot(memory, GetParam());
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

TEST_P(Snapshots, ReadsAcrossPagesAndStopsWhereNothingIs) {
  FakeMemory memory;
  memory.allocate(8 * kPage, 2 * kPage);
  memory.write<std::uint64_t>(9 * kPage - 4, 0x1122334455667788);
  SnapshotMemory snapshot(memory, GetParam());
  EXPECT_EQ(snapshot.read<std::uint64_t>(9 * kPage - 4), 0x1122334455667788u);
  EXPECT_FALSE(snapshot.read<std::uint64_t>(10 * kPage - 4));
  EXPECT_FALSE(snapshot.read<std::uint64_t>(64 * kPage));
  std::vector<std::byte> bytes(16);
  RemoteRange range{10 * kPage - 4, bytes};
  snapshot.read_many(std::span(&range, 1));
  EXPECT_EQ(range.done, 4u);
}

TEST_P(Snapshots, GivesUpPagesThatAreNoLongerAskedFor) {
  FakeMemory memory;
  memory.allocate(kPage, 8 * kPage);
  SnapshotMemory snapshot(memory, GetParam());
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

TEST_P(Snapshots, KeepsUnusedPagesAsLongAsToldTo) {
  FakeMemory memory;
  memory.allocate(kPage, 8 * kPage);
  SnapshotMemory snapshot(memory, GetParam());
  snapshot.keep_unused(2);
  EXPECT_TRUE(snapshot.read<std::uint64_t>(kPage));
  snapshot.renew();
  snapshot.renew();
  int before = memory.reads;
  EXPECT_TRUE(snapshot.read<std::uint64_t>(kPage));
  EXPECT_EQ(memory.reads, before);
  snapshot.renew();
  snapshot.renew();
  snapshot.renew();
  before = memory.reads;
  EXPECT_TRUE(snapshot.read<std::uint64_t>(kPage));
  EXPECT_EQ(memory.reads, before + 1);
}

TEST_P(Snapshots, APageThatIsNotMappedHidesNoNeighbour) {
  FakeMemory memory;
  memory.allocate(kPage, 2 * kPage);
  memory.allocate(4 * kPage, 2 * kPage);
  memory.write<std::uint64_t>(4 * kPage, 44);
  SnapshotMemory snapshot(memory, GetParam());
  for (std::uint64_t page = 1; page < 7; ++page) (void)snapshot.read<std::uint64_t>(page * kPage);
  snapshot.renew();  // one range from the first page to the sixth
  EXPECT_TRUE(snapshot.read<std::uint64_t>(2 * kPage));
  EXPECT_FALSE(snapshot.read<std::uint64_t>(3 * kPage));
  EXPECT_EQ(snapshot.read<std::uint64_t>(4 * kPage), 44u);
  EXPECT_TRUE(snapshot.read<std::uint64_t>(5 * kPage));
  EXPECT_FALSE(snapshot.read<std::uint64_t>(6 * kPage));
}

TEST_P(Snapshots, ReadsThroughBeyondItsLimit) {
  FakeMemory memory;
  memory.allocate(kPage, 3000 * kPage);
  SnapshotMemory snapshot(memory, GetParam());
  for (std::uint64_t at = kPage; at <= 3000 * kPage; at += GetParam()) {
    EXPECT_TRUE(snapshot.read<std::uint64_t>(at));
  }
  int before = memory.reads;
  EXPECT_TRUE(snapshot.read<std::uint64_t>(2048 * kPage));
  EXPECT_EQ(memory.reads, before);
  EXPECT_TRUE(snapshot.read<std::uint64_t>(2049 * kPage));
  EXPECT_EQ(memory.reads, before + 1);
}

TEST_P(Snapshots, HoldsAllPagesOfABatchWithOneRead) {
  FakeMemory memory;
  memory.allocate(kPage, 8 * kPage);
  memory.write<std::uint64_t>(6 * kPage - 4, 7);
  SnapshotMemory snapshot(memory, GetParam());
  std::vector<std::byte> bytes(24);
  RemoteRange ranges[] = {{kPage, std::span(bytes).first(8)},
                          {6 * kPage - 4, std::span(bytes).subspan(8, 8)},
                          {20 * kPage, std::span(bytes).subspan(16)}};
  const int before = memory.reads;
  snapshot.read_many(ranges);
  EXPECT_EQ(memory.reads, before + 1);
  EXPECT_TRUE(ranges[0].complete() && ranges[1].complete());
  EXPECT_EQ(ranges[2].done, 0u);
  EXPECT_EQ(snapshot.read<std::uint64_t>(6 * kPage - 4), 7u);
  EXPECT_EQ(memory.reads, before + 1);
}

TEST_P(Snapshots, PassesLargeBatchesOnWithoutHoldingThem) {
  FakeMemory memory;
  memory.allocate(kPage, 8 * kPage);
  SnapshotMemory snapshot(memory, GetParam());
  snapshot.pass_batches(2);
  std::vector<std::byte> bytes(16);
  RemoteRange ranges[] = {{kPage, std::span(bytes).first(8)},
                          {2 * kPage, std::span(bytes).last(8)}};
  snapshot.read_many(ranges);
  EXPECT_TRUE(ranges[0].complete() && ranges[1].complete());
  const int before = memory.reads;
  EXPECT_TRUE(snapshot.read<std::uint64_t>(kPage));
  EXPECT_EQ(memory.reads, before + 1);
}

// Frames of CPython 3.13 and 3.12 as they lie in memory.
class WalkFrames : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kThread = 0x10000, kCFrames = 0x20000, kFrames = 0x100000;

  explicit WalkFrames(int minor = 13) : layout(*measured_layout(python_version(3, minor))) {
    memory.allocate(kThread, 4096);
    memory.allocate(kCFrames, 4096);
    memory.allocate(kFrames, 64 * 4096);
  }
  static std::uint64_t frame(int i) { return kFrames + 128 * static_cast<std::uint64_t>(i); }
  static std::uint64_t code(int i) { return 0x800000 + 4096 * static_cast<std::uint64_t>(i); }
  // Frame `i` at the code unit of its number, on top of `below`.
  void put(int i, std::uint64_t below, bool shim = false) {
    const dp_python_layout& b = layout.bpf;
    std::uint64_t at = frame(i) + b.frame_base;
    memory.write<std::uint64_t>(at + b.frame_code, code(i));
    memory.write<std::uint64_t>(at + b.frame_previous, below);
    memory.write<std::uint64_t>(at + b.frame_instr,
                                code(i) + b.code_instructions + 2 * static_cast<std::uint64_t>(i));
    memory.write<std::uint8_t>(at + b.frame_owner, shim ? 3 : 0);
  }
  void top(std::uint64_t address) {
    memory.write<std::uint64_t>(kThread + layout.bpf.tstate_frame, address);
  }
  std::optional<std::vector<RemoteFrame>> walk(std::size_t limit = 100) {
    RemoteObjects objects(memory, layout);
    return walk_frames(objects, kThread, limit, &cut_off);
  }

  FakeMemory memory;
  const PythonLayout& layout;
  bool cut_off = false;
};

TEST_F(WalkFrames, LeavesOutShimsAndKeepsInstructions) {
  put(1, frame(2));
  put(2, frame(3), true);
  put(3, 0);
  top(frame(1));
  auto found = walk();
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (std::vector<RemoteFrame>{{frame(1), code(1), 1}, {frame(3), code(3), 3}}));
  EXPECT_EQ(walk(1)->size(), 1u);
  top(0);
  EXPECT_TRUE(walk()->empty());
  const dp_python_layout& b = layout.bpf;
  top(frame(3));
  std::uint64_t instruction = frame(3) + b.frame_base + b.frame_instr;
  memory.write<std::uint64_t>(instruction, code(3) + b.code_instructions - 2);
  EXPECT_EQ(walk()->front().unit, RemoteFrame::kNotBegun);
  memory.write<std::uint64_t>(instruction, code(2));
  EXPECT_EQ(walk()->front().unit, RemoteFrame::kNowhere);
}

TEST_F(WalkFrames, EndsAtCyclesAndUnreadableFrames) {
  for (int length = 1; length <= 40; ++length) {
    for (bool shims : {false, true}) {
      put(0, frame(1));
      for (int i = 1; i <= length; ++i) put(i, frame(i == length ? 1 : i + 1), shims);
      top(frame(0));
      EXPECT_FALSE(walk(1000)) << length;
    }
  }
  put(1, 0x900000);  // not mapped
  EXPECT_FALSE(walk());
  put(1, frame(2) + 4);  // no pointer
  EXPECT_FALSE(walk());
  for (int i = 0; i < 1500; ++i) put(i, frame(i + 1), true);
  EXPECT_FALSE(walk(100)) << "shims without end";
}

class WalkFramesOfCFrames : public WalkFrames {
 protected:
  WalkFramesOfCFrames() : WalkFrames(12) {
    // One call of the eval loop on top of another.
    call(1, frame(1), kCFrames + 2 * 64);
    call(2, frame(4), 0);
    put(1, frame(2));
    put(2, frame(3));
    put(3, frame(4), true);
    put(4, frame(5));
    put(5, 0, true);
    top(kCFrames + 64);
  }
  void call(int i, std::uint64_t current, std::uint64_t below) {
    std::uint64_t at = kCFrames + 64 * static_cast<std::uint64_t>(i);
    memory.write<std::uint64_t>(at + layout.bpf.cframe_frame, current);
    memory.write<std::uint64_t>(at + layout.bpf.cframe_previous, below);
  }
};

TEST_F(WalkFramesOfCFrames, NoticesFramesThatDoNotLeadToTheCallBelow) {
  EXPECT_EQ(walk()->size(), 3u);
  EXPECT_FALSE(cut_off);
  put(2, 0);  // a generator that was just left
  EXPECT_EQ(walk()->size(), 2u);
  EXPECT_TRUE(cut_off);
  put(2, frame(3));
  put(3, frame(5), true);
  EXPECT_EQ(walk()->size(), 2u);
  EXPECT_TRUE(cut_off);
  call(1, 0, kCFrames + 2 * 64);  // nothing was called yet
  EXPECT_EQ(walk()->size(), 1u);
  EXPECT_FALSE(cut_off);
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
      LineUse::kLowering,
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

TEST(DumpText, TheNodeThatIsLowered) {
  ProcessDump dump = example();
  EXPECT_TRUE(to_json(dump)["threads"][0]["compile"]["graph_node"].is_null());
  dump.threads[0].graph = {12, 310};
  EXPECT_NE(one_line_of(dump_text(dump)).find(" train.py:40 step; node 12 of 310\n"),
            std::string::npos);
  const nlohmann::ordered_json compile = to_json(dump)["threads"][0]["compile"];
  EXPECT_EQ(compile["graph_node"], 12);
  EXPECT_EQ(compile["graph_nodes"], 310);
}

TEST(DumpAgain, SaysForHowLongACompileHasNotAdvanced) {
  ProcessDump dump = example();
  dump.threads[0].graph = {12, 310};
  ThreadDump& idle = dump.threads.emplace_back();
  idle.tid = 4244;
  DumpAgain again;
  EXPECT_EQ(again.text(dump, 0), dump_text(dump));
  dump.threads[0].compile->seconds = 17.34;
  std::string text = one_line_of(again.text(dump, 5));
  EXPECT_NE(text.find("for 17.3 s, in inductor"), std::string::npos) << text;
  EXPECT_NE(text.find("node 12 of 310 has not advanced for 5.0 s"), std::string::npos) << text;
  EXPECT_EQ(text.find("4244"), std::string::npos) << "it compiles nothing";
  EXPECT_EQ(text.find("Node.visit"), std::string::npos) << "frames are in the first text alone";
  EXPECT_NE(again.text(dump, 10).find("has not advanced for 10.0 s\n"), std::string::npos);
  const auto advances = [&](double seconds) {
    return again.text(dump, seconds).find("not advanced") == std::string::npos;
  };
  dump.threads[0].graph.node = 13;
  EXPECT_TRUE(advances(15));
  EXPECT_FALSE(advances(20));
  dump.threads[0].user_code.lines.back().line = 18;
  EXPECT_TRUE(advances(25));
  dump.threads[0].consistent = false;
  EXPECT_TRUE(advances(30)) << "it moved while it was read";
  dump.threads.erase(dump.threads.begin());
  EXPECT_EQ(again.text(dump, 35), "No thread compiles.\n");
  dump.threads[0].waits_for_compile_lock = true;
  EXPECT_TRUE(advances(40));
  EXPECT_NE(again.text(dump, 45).find("waits for the compile lock"), std::string::npos);
}

TEST(DumpText, UnknownPartsAreLeftOut) {
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
