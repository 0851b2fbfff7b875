// One stack from two: the native frames of a thread and its Python frames. Each native frame in
// CPython's interpreter loop corresponds to one call of it, which ran the Python frames up to and
// including the one marked as its first (DP_FRAME_ENTRY); those take its place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bpf/events.h"

namespace dynprof {

struct MergedFrame {
  bool python = false;
  std::uint32_t index = 0;  // into the frames given, of its kind
  bool operator==(const MergedFrame&) const = default;
};

struct StackHalves {
  std::span<const std::uint8_t> in_eval_loop;  // per native frame, leaf first
  bool native_whole = false;                   // its last one is where the thread began
  std::span<const dp_frame> python;            // leaf first
  bool python_whole = false;
};

// Leaf first, into `merged`. False when the two contradict each other: then `merged` has the native
// frames and, towards the root, all the Python frames: both true, their order not known.
//
// Where both are whole they are joined from the root: a call of the loop that has just begun, or is
// just returning, has no Python frame. Where one is cut they are joined from the leaf.
bool merge_stacks(const StackHalves& halves, std::vector<MergedFrame>& merged);

}  // namespace dynprof
