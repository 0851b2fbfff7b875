// Inlined functions as frames of their own: a native frame with a chain of k of them becomes k + 1
// frames on every stack that it is on, so that whatever is made from stacks shows them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/recording/model.h"

namespace dynprof::recording {

// No stack becomes deeper than this by inlined functions; drawing has a bound of its own
// (timeline.h).
inline constexpr std::uint32_t kMaxShownDepth = 6000;

struct InlinedShown {
  // By StackId of before, the stack that means the same now; empty: stacks are what they were.
  std::vector<StackId> stacks;
  std::string problem;  // a sentence about what is not shown, "" when all is

  StackId now(StackId before) const { return stacks.empty() ? before : stacks[before]; }
};

// Puts tables.source_places into frames and stacks, and empties them. Frames keep their ids and
// stand for the function that is not inlined; stacks get new ones, callers still before their
// callees, and rows of the tables that refer to stacks follow. Takes at most `memory` bytes more.
InlinedShown show_inlined(Tables& tables, std::uint64_t memory);

}  // namespace dynprof::recording
