#include "user/torch/inlined_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace dynprof {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

// A user function's begin: `callers` from the frame that called torch's function on.
dp_inline_event begin(std::uint64_t frame, const std::vector<std::uint64_t>& callers,
                      std::uint64_t time_ns = 0, std::uint64_t code = 0x10, std::uint64_t ip = 1) {
  dp_inline_event event = {};
  event.header.time_ns = time_ns;
  event.begin = 1;
  event.frame = frame;
  event.code = code;
  event.ip = ip;
  std::vector<std::uint64_t> all = {0xaaa, 0, 0xbbb};  // torch's function, a shim, __enter__
  all.insert(all.end(), callers.begin(), callers.end());
  all.resize(std::min<std::size_t>(all.size(), DP_MAX_INLINE_CALLERS));
  std::copy(all.begin(), all.end(), event.callers);
  event.caller_count = static_cast<std::uint16_t>(all.size());
  return event;
}

dp_inline_event end(std::uint64_t frame) {
  dp_inline_event event = {};
  event.frame = frame;
  return event;
}

TEST(InlinedCalls, NestByTheFramesTheyLieIn) {
  InlinedCalls open;
  open.push(begin(0x100, {1, 0xf}), 2);
  const dp_inline_event inner = begin(0x200, {2, 1, 0xf});
  EXPECT_EQ(open.around(inner), 1u);
  open.push(inner, 2);
  EXPECT_EQ(open.around(begin(0x300, {3, 2, 1, 0xf})), 2u);
  // Of the same caller: the call before was left by an exception.
  EXPECT_EQ(open.around(begin(0x300, {2, 1, 0xf})), 1u);
  EXPECT_EQ(open.around(begin(0x300, {9, 0xf})), 0u) << "none of them is around it";
}

TEST(InlinedCalls, EndWithTheirFrame) {
  InlinedCalls open;
  open.push(begin(0x100, {1}), 1);
  open.push(begin(0x200, {2, 1}), 1);
  open.push(begin(0x300, {3, 2, 1}), 1);
  EXPECT_EQ(open.with(end(0x300)), 3u);
  EXPECT_EQ(open.with(end(0x200)), 2u) << "the inner one was left by an exception";
  EXPECT_EQ(open.with(end(0x999)), 0u) << "it began before we watched";
  open.pop();
  EXPECT_EQ(open.size(), 2u);
}

TEST(InlinedCalls, EndWithThePhaseAroundThem) {
  InlinedCalls open;
  open.push(begin(0x100, {1}), 2);
  open.push(begin(0x200, {2, 1}), 3);
  EXPECT_EQ(open.within(3), 2u);
  EXPECT_EQ(open.within(2), 1u);
  EXPECT_EQ(open.within(1), 0u);
}

TEST(InlinedCalls, ASecondReadOfTheFirstInstructionIsNoCall) {
  InlinedCalls open;
  EXPECT_FALSE(open.is_repeat(begin(0x100, {1})));
  open.push(begin(0x100, {1}, 10 * kMs), 1);
  EXPECT_TRUE(open.is_repeat(begin(0x100, {1}, 10 * kMs + 10'000))) << "no call is that short";
  EXPECT_TRUE(open.is_repeat(begin(0x100, {1}, 15 * kMs, 0x10, 2))) << "by another instruction";
  EXPECT_FALSE(open.is_repeat(begin(0x100, {1}, 11 * kMs))) << "the same function again";
  EXPECT_FALSE(open.is_repeat(begin(0x100, {1}, 40 * kMs, 0x10, 2)));
  EXPECT_FALSE(open.is_repeat(begin(0x200, {1}, 10 * kMs + 10'000)));
  EXPECT_FALSE(open.is_repeat(begin(0x100, {1}, 10 * kMs + 10'000, 0x11)));
}

// More frames than an event has room for: the caller is not among those sent.
TEST(InlinedCalls, AChainThatIsCutLiesInACallItDoesNotContradict) {
  std::vector<std::uint64_t> deep;
  for (std::uint64_t i = 0; i < 2 * DP_MAX_INLINE_CALLERS; ++i) deep.push_back(1000 + i);
  InlinedCalls open;
  open.push(begin(0x100, {1, 0xe, 0xf}), 1);
  EXPECT_EQ(open.around(begin(0x200, deep)), 1u);
  // It shows a frame around that caller, but not the caller: the call is over.
  deep[0] = 2;
  deep[1] = 0xe;
  EXPECT_EQ(open.around(begin(0x200, deep)), 0u);
}

TEST(InlinedCalls, ABeginWithoutCallersLiesInNothing) {
  InlinedCalls open;
  open.push(begin(0x100, {1}), 1);
  EXPECT_EQ(open.around(begin(0x200, {})), 0u);
  dp_inline_event hostile = begin(0x200, {1});
  hostile.caller_count = 0xffff;  // more than there are
  EXPECT_LE(open.around(hostile), 1u);
}

}  // namespace
}  // namespace dynprof
