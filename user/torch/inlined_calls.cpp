#include "user/torch/inlined_calls.h"

#include <algorithm>

namespace dynprof {
namespace {

// The frames a call lies in, from the one that made it. Before it come torch's function, a
// generator, and contextlib's __enter__.
std::vector<std::uint64_t> callers_of(const dp_inline_event& event) {
  constexpr std::size_t kSkip = 2;
  std::size_t count = std::min<std::size_t>(event.caller_count, DP_MAX_INLINE_CALLERS);
  std::vector<std::uint64_t> callers(event.callers, event.callers + count);
  std::erase(callers, 0);  // shims
  callers.erase(callers.begin(), callers.begin() + std::min(kSkip, callers.size()));
  return callers;
}

}  // namespace

// An instruction may be read more than once: 3.11 reads the whole function when it specializes it, and some builds of
// 3.12 read opcode and argument one after the other. A frame's address says little: the next call's frame is
// often where one left by an exception was. But no call takes less than the first time, and the next one of the same
// function is read by the same machine instruction. The second time bounds how long a thread was off the CPU between two
// reads.
bool InlinedCalls::is_repeat(const dp_inline_event& begin) const {
  constexpr std::uint64_t kShortestCallNs = 30'000;
  constexpr std::uint64_t kReadsApartNs = 20'000'000;
  if (open_.empty() || open_.back().frame != begin.frame || open_.back().code != begin.code)
    return false;
  const std::uint64_t apart_ns = begin.header.time_ns - open_.back().begin_ns;
  return apart_ns < kShortestCallNs || (begin.ip != open_.back().ip && apart_ns < kReadsApartNs);
}

// A call lies in another if that one's caller is among its callers, but is not its own. A chain too
// long to be sent whole may end before it: then only if it does not show the frames around that caller,
// between which it would be.
bool InlinedCalls::lies_in(const Call& outer, const std::vector<std::uint64_t>& callers,
                           bool whole) {
  if (callers.empty() || outer.callers.empty() || callers[0] == outer.callers[0]) return false;
  auto shows = [&](std::uint64_t frame) {
    return std::find(callers.begin(), callers.end(), frame) != callers.end();
  };
  if (shows(outer.callers[0])) return true;
  return !whole && std::none_of(outer.callers.begin() + 1, outer.callers.end(), shows);
}

std::size_t InlinedCalls::around(const dp_inline_event& begin) const {
  auto callers = callers_of(begin);
  const bool whole = begin.caller_count < DP_MAX_INLINE_CALLERS;
  std::size_t keep = open_.size();
  while (keep > 0 && !lies_in(open_[keep - 1], callers, whole)) --keep;
  return keep;
}

std::size_t InlinedCalls::with(const dp_inline_event& end) const {
  std::size_t keep = open_.size();
  while (keep > 0 && open_[keep - 1].frame != end.frame) --keep;
  return keep;
}

std::size_t InlinedCalls::within(std::size_t phases) const {
  std::size_t keep = open_.size();
  while (keep > 0 && open_[keep - 1].phases > phases) --keep;
  return keep;
}

void InlinedCalls::push(const dp_inline_event& begin, std::size_t phases) {
  open_.push_back(
      {begin.frame, callers_of(begin), begin.code, begin.ip, begin.header.time_ns, phases});
}

}  // namespace dynprof
