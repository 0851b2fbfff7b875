// The BPF walker of Python frames on memory made for it, of every version: what it finds, that user space's
// walk finds the same, and that it ends whatever the memory holds.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/unit/bpf_walked_thread.h"
#include "user/target/interpreter_walk.h"

namespace dynprof {
namespace {

using namespace dynprof::testing;

class BpfWalk : public ::testing::TestWithParam<int> {
 protected:
  WalkedThread thread{GetParam()};
};

TEST_P(BpfWalk, FindsTheFramesThatUserSpaceFinds) {
  thread.make(40);  // over several pages
  const dp_host_stack& stack = thread.walk();
  EXPECT_EQ(stack.reason, std::uint32_t{DP_COUNT_SAMPLES});
  ASSERT_EQ(stack.frame_count, 40u);
  EXPECT_EQ(stack.flags, DP_SAMPLE_NEW_CODE);
  RemoteObjects objects(thread.memory, thread.layout);
  const auto frames = walk_frames(objects, kState, DP_MAX_PYTHON_FRAMES);
  ASSERT_TRUE(frames);
  ASSERT_EQ(frames->size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(stack.frames[i].code, thread.code_at(i));
    EXPECT_EQ(stack.frames[i].code, (*frames)[i].code);
    EXPECT_EQ(stack.frames[i].unit & DP_FRAME_UNIT_MASK, 3 + i);
    EXPECT_EQ(static_cast<std::int32_t>(stack.frames[i].unit & DP_FRAME_UNIT_MASK),
              (*frames)[i].unit);
    EXPECT_EQ(stack.frames[i].identity, thread.identity(i));
  }
}

TEST_P(BpfWalk, ANewCodeObjectAtTheAddressesOfAnotherHasAnIdentityOfItsOwnFrom312On) {
  thread.make(2);
  thread.walk();
  thread.set_version(1, 0x5000);
  const dp_host_stack& stack = thread.walk();
  EXPECT_EQ(stack.frames[0].identity, thread.identity(0));
  EXPECT_EQ(stack.frames[1].identity == thread.identity(1), !thread.has_versions());
}

TEST_P(BpfWalk, ReadsPagesNotFrames) {
  thread.make(40);
  const std::uint32_t reads = thread.walk().reads;
  // 40 code objects, 6 pages of frames, some for the thread.
  EXPECT_LT(reads, 40u + 20u);
}

TEST_P(BpfWalk, AFrameThatHasNotBegunHasNoInstruction) {
  thread.make(1);
  thread.set_unit(0, -1);
  EXPECT_EQ(thread.walk().frames[0].unit & DP_FRAME_UNIT_MASK, DP_FRAME_UNIT_NONE);
}

TEST_P(BpfWalk, ACycleEnds) {
  for (std::size_t length : {1, 2, 7, 100}) {
    thread.make(length);
    thread.set_previous(length - 1, thread.frame_at(0));
    const dp_host_stack& stack = thread.walk();
    EXPECT_TRUE(stack.flags & DP_SAMPLE_FRAME_FAULT) << length;
    EXPECT_LE(stack.frame_count, 3 * length + 1);
  }
}

TEST_P(BpfWalk, WhatCannotBeReadEndsTheStack) {
  thread.make(5);
  thread.set_previous(2, 0x7ff0'0000'0000);
  const dp_host_stack& stack = thread.walk();
  EXPECT_EQ(thread.codes(), (std::vector{thread.code_at(0), thread.code_at(1), thread.code_at(2)}));
  EXPECT_TRUE(stack.flags & DP_SAMPLE_FRAME_FAULT);
}

TEST_P(BpfWalk, ACodeObjectThatCannotBeReadIsMarked) {
  thread.make(2);
  thread.memory.free(kCodes);
  const dp_host_stack& stack = thread.walk();
  ASSERT_EQ(stack.frame_count, 2u);
  EXPECT_TRUE(stack.frames[0].unit & DP_FRAME_CODE_FAULT);
}

TEST_P(BpfWalk, DeepStacksAreCut) {
  thread.make(DP_MAX_PYTHON_FRAMES + 50);
  const dp_host_stack& stack = thread.walk();
  EXPECT_EQ(stack.frame_count, std::uint32_t{DP_MAX_PYTHON_FRAMES});
  EXPECT_TRUE(stack.flags & DP_SAMPLE_TRUNCATED);
}

TEST_P(BpfWalk, ReasonsForNoStack) {
  thread.make(1);
  thread.memory.write<std::uint64_t>(kState + thread.layout.bpf.tstate_thread_id, 0xdead);
  EXPECT_EQ(thread.walk().reason, std::uint32_t{DP_COUNT_THREAD_STATE_STALE});
  thread.memory.write<std::uint64_t>(kThread + 64, 0);
  EXPECT_EQ(thread.walk().reason, std::uint32_t{DP_COUNT_NO_THREAD_STATE});
  thread.memory.write<std::uint64_t>(kThread + 64, 0x7ff0'0000'0000);
  EXPECT_EQ(thread.walk().reason, std::uint32_t{DP_COUNT_THREAD_STATE_FAULT});
  thread.process.flags = 0;
  EXPECT_EQ(thread.walk().reason, std::uint32_t{DP_COUNT_NOT_PYTHON});
  EXPECT_EQ(thread.stack->frame_count, 0u);
}

TEST_P(BpfWalk, AShimBeginsACall) {
  if (thread.layout.bpf.shim_owner == 0xff) GTEST_SKIP() << "CPython has shims from 3.12 on";
  thread.make(4);
  thread.make_shim(2);
  const dp_host_stack& stack = thread.walk();
  EXPECT_EQ(thread.codes(), (std::vector{thread.code_at(0), thread.code_at(1), thread.code_at(3)}));
  EXPECT_FALSE(stack.frames[0].unit & DP_FRAME_ENTRY);
  EXPECT_TRUE(stack.frames[1].unit & DP_FRAME_ENTRY);
}

// Words that are addresses of one another, freed memory and offsets that fit no version.
TEST_P(BpfWalk, AnyMemoryEnds) {
  std::mt19937_64 random(static_cast<unsigned>(GetParam()));
  const std::uint64_t places[] = {kThread, kState, kInterpreter, kCframes, kFrames,
                                  kCodes,  0,      ~0ULL};
  for (int round = 0; round < 300; ++round) {
    for (std::uint64_t piece : {kThread, kState, kCframes, kFrames, kCodes}) {
      thread.memory.free(piece);
      // Without its state a thread has no stack: those two stay.
      if (piece != kThread && piece != kState && random() % 8 == 0) continue;
      thread.memory.allocate(piece, 4096);
      for (int i = 0; i < 512; ++i) {
        const std::uint64_t place = places[random() % std::size(places)];
        thread.memory.write(piece + 8 * static_cast<std::uint64_t>(i),
                            random() % 16 ? place + random() % 64 * 8 : random());
      }
    }
    if (random() % 2) thread.memory.write(kThread + 64, kState);
    dp_python_layout& layout = thread.process.python;
    layout = thread.layout.bpf;
    if (random() % 2) {
      for (std::size_t i = 0; i < sizeof layout; ++i)
        if (random() % 4 == 0) reinterpret_cast<std::uint8_t*>(&layout)[i] ^= random() % 256;
    }
    if (random() % 2)
      thread.memory.write(kState + layout.tstate_thread_id % 4000, std::uint64_t{kThread});
    const dp_host_stack& stack = thread.walk();
    ASSERT_LE(stack.frame_count, std::uint32_t{DP_MAX_PYTHON_FRAMES});
    ASSERT_LT(stack.reads, 10'000u);
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, BpfWalk, ::testing::Values(10, 11, 12, 13, 14, 15));

}  // namespace
}  // namespace dynprof
