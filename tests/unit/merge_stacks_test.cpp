// Native and Python halves of a stack, joined: written out by hand, leaf first. A native frame is 'n',
// or 'E' in the interpreter loop; a Python frame is 'p', 'P' the first of its call; '0' puts an empty
// call above the next Python frame.
#include "user/stacks/merge_stacks.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace dynprof {
namespace {

struct Halves {
  std::vector<std::uint8_t> loops;
  std::vector<dp_frame> python;
};

Halves halves_of(std::string_view native, std::string_view python) {
  Halves halves;
  for (char c : native) halves.loops.push_back(c == 'E');
  std::uint32_t above = 0;
  for (char c : python) {
    if (c == '0') {
      above = DP_FRAME_EMPTY_CALL;
      continue;
    }
    halves.python.push_back({1, 2, (c == 'P' ? DP_FRAME_ENTRY : 0) | above});
    above = 0;
  }
  return halves;
}

// Native frames as letters from 'a', Python frames as digits from '1'; "!" in front: they do not fit.
std::string merge(std::string_view native, std::string_view python, bool native_whole = true,
                  bool python_whole = true) {
  const Halves halves = halves_of(native, python);
  std::vector<MergedFrame> merged;
  const bool fits = merge_stacks({halves.loops, native_whole, halves.python, python_whole}, merged);
  std::string text = fits ? "" : "!";
  for (const MergedFrame& frame : merged)
    text += static_cast<char>((frame.python ? '1' : 'a') + static_cast<int>(frame.index));
  return text;
}

TEST(MergeStacks, EachLoopIsReplacedByItsCall) {
  EXPECT_EQ(merge("nEn", "P"), "a1c");
  EXPECT_EQ(merge("nEnEnn", "ppPP"), "a123c4ef");
  // CPython 3.10: a call of the loop for each frame.
  EXPECT_EQ(merge("EEEn", "PPP"), "123d");
}

TEST(MergeStacks, OneHalfAlone) {
  EXPECT_EQ(merge("nnn", ""), "abc");
  EXPECT_EQ(merge("", "pP", false), "12");
  EXPECT_EQ(merge("", ""), "");
}

TEST(MergeStacks, ALoopThatHasJustBegunHasNoFrame) {
  EXPECT_EQ(merge("EnEn", "pP"), "ab12d");
  EXPECT_EQ(merge("nEnEn", "P"), "abc1e");
}

TEST(MergeStacks, ACallThatIsEndingHasNoFrame) {
  // At the top: its only frame is gone already.
  EXPECT_EQ(merge("nEnEn", "0pP"), "abc12e");
  // Further down: what its last frame held runs Python code as it goes.
  EXPECT_EQ(merge("EnEnEn", "P0P"), "1bcd2f");
  // With the native half cut below it.
  EXPECT_EQ(merge("nEn", "0P", false), "abc1");
}

TEST(MergeStacks, ACutHalfIsJoinedFromTheLeaf) {
  EXPECT_EQ(merge("nEn", "pPpP", false), "a12c34");
  EXPECT_EQ(merge("n", "pP", false), "a12");
  EXPECT_EQ(merge("nEnEn", "pP", true, false), "a12cde");
  EXPECT_EQ(merge("nEnEnEn", "pPp", true, false), "a12c3efg");
  EXPECT_EQ(merge("nEnE", "P", false, false), "a1cd");
}

TEST(MergeStacks, ContradictionsAreShownAsTheyAre) {
  EXPECT_EQ(merge("nEn", "PP"), "!abc12");
  EXPECT_EQ(merge("nEEEn", "P"), "!abcde1");
  EXPECT_EQ(merge("nEEn", "P", false, true), "!abcd1");
  EXPECT_EQ(merge("nn", "P", true, false), "!ab1");
  EXPECT_EQ(merge("n", "P"), "!a1");
}

TEST(MergeStacks, NoFrameIsLostOrShownTwice) {
  // Every small pair of halves, cut and whole.
  for (unsigned native = 0; native < 64; ++native) {
    for (unsigned python = 0; python < 64; ++python) {
      Halves halves;
      for (unsigned i = 0; i < 6; ++i) {
        halves.loops.push_back(native >> i & 1);
        halves.python.push_back({1, 2, python >> i & 1 ? DP_FRAME_ENTRY : 0});
      }
      for (bool native_whole : {false, true}) {
        for (bool python_whole : {false, true}) {
          std::vector<MergedFrame> merged;
          merge_stacks({halves.loops, native_whole, halves.python, python_whole}, merged);
          std::uint32_t next_python = 0, last_native = 0;
          std::size_t natives = 0, shown_loops = 0;
          for (const MergedFrame& frame : merged) {
            if (frame.python) {
              EXPECT_EQ(frame.index, next_python++);
            } else {
              EXPECT_TRUE(natives == 0 || frame.index > last_native);
              last_native = frame.index;
              ++natives;
              shown_loops += halves.loops[frame.index];
            }
          }
          EXPECT_EQ(next_python, 6u);
          std::size_t loops = 0;
          for (std::uint8_t loop : halves.loops) loops += loop;
          EXPECT_EQ(natives - shown_loops, 6 - loops);
        }
      }
    }
  }
}

}  // namespace
}  // namespace dynprof
