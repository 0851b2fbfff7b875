#include "user/stacks/merge_stacks.h"

#include <cstddef>

namespace dynprof {
namespace {

// The Python frames of one call of the interpreter loop: [begin, end), none for one that is ending.
struct Call {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

std::vector<Call> calls_of(std::span<const dp_frame> python) {
  std::vector<Call> calls;
  std::uint32_t begin = 0;
  const auto count = static_cast<std::uint32_t>(python.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    if (python[i].unit & DP_FRAME_EMPTY_CALL) {
      if (begin < i) calls.push_back({begin, i});
      calls.push_back({i, i});
      begin = i;
    }
    if (python[i].unit & DP_FRAME_ENTRY) {
      calls.push_back({begin, i + 1});
      begin = i + 1;
    }
  }
  if (begin < count) calls.push_back({begin, count});
  return calls;
}

std::size_t count_loops(std::span<const std::uint8_t> in_eval_loop) {
  std::size_t loops = 0;
  for (std::uint8_t inside : in_eval_loop) loops += inside != 0;
  return loops;
}

// Whether so many loops and calls can be of one stack, and how many loops at the leaf have no call.
bool fit(const StackHalves& halves, std::size_t loops, std::size_t calls, std::size_t& without) {
  without = 0;
  if (halves.native_whole && halves.python_whole) {
    without = loops - calls;
    return loops == calls || loops == calls + 1;
  }
  if (halves.python_whole) return loops <= calls;
  if (halves.native_whole) return calls <= loops;
  return true;
}

void append_python(std::uint32_t begin, std::uint32_t end, std::vector<MergedFrame>& merged) {
  for (std::uint32_t i = begin; i < end; ++i) merged.push_back({true, i});
}

}  // namespace

bool merge_stacks(const StackHalves& halves, std::vector<MergedFrame>& merged) {
  merged.clear();
  const std::vector<Call> calls = calls_of(halves.python);
  const auto python_count = static_cast<std::uint32_t>(halves.python.size());
  const auto native_count = static_cast<std::uint32_t>(halves.in_eval_loop.size());
  std::size_t without = 0;
  if (!fit(halves, count_loops(halves.in_eval_loop), calls.size(), without)) {
    for (std::uint32_t i = 0; i < native_count; ++i) merged.push_back({false, i});
    append_python(0, python_count, merged);
    return false;
  }
  std::size_t next = 0;
  std::uint32_t used = 0;  // Python frames
  for (std::uint32_t i = 0; i < native_count; ++i) {
    const bool loop = halves.in_eval_loop[i] != 0;
    if (!loop || next >= calls.size()) {
      merged.push_back({false, i});
      continue;
    }
    if (without > 0) {
      --without;
      merged.push_back({false, i});
      continue;
    }
    // A loop without a Python frame is shown as what it is.
    if (calls[next].begin == calls[next].end) merged.push_back({false, i});
    append_python(calls[next].begin, calls[next].end, merged);
    used = calls[next].end;
    ++next;
  }
  // The native half is cut: the rest of the Python one lies below.
  append_python(used, python_count, merged);
  return true;
}

}  // namespace dynprof
