// A set of samples by function: the numbers of pstats. Per function and per call edge: samples in
// which it was the leaf, and samples which had it on the stack (once per stack, so recursion never
// counts twice).
//
// Over the callers of a function, leaf samples add up to the function's own (less those in which it
// was the root of its stack). Samples on the stack do too unless the function was entered more than
// once in a stack, by recursion: then each caller has its full share and the sum is larger, as
// cProfile's cumulative times are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "symbolizer/profile/call_tree.h"
#include "symbolizer/profile/functions.h"
#include "symbolizer/profile/stack_counts.h"

namespace dynprof {

struct CallerEntry {
  FunctionId caller = 0;
  std::uint64_t leaf = 0;
  std::uint64_t on_stack = 0;
  std::uint64_t leaf_ns = 0;  // what these samples and waits stand for
  std::uint64_t on_stack_ns = 0;
};

struct ProfileEntry {
  FunctionId function = 0;
  std::uint64_t leaf = 0;
  std::uint64_t on_stack = 0;
  std::uint64_t leaf_ns = 0;
  std::uint64_t on_stack_ns = 0;
  std::vector<CallerEntry> callers;  // by caller's id
};

struct Profile {
  std::vector<ProfileEntry> entries;  // by function's id
  std::uint64_t samples = 0;          // the sum of `leaf`
  std::uint64_t ns = 0;               // the sum of `leaf_ns`
};

// Folds many sets of one recording. `labels` of the tree are FunctionIds.
class Folder {
 public:
  explicit Folder(const CallTree& tree);
  Profile fold(std::span<const StackCount> counts);

 private:
  Profile fold_by(std::span<const StackCount> counts, std::uint64_t StackCount::*weight);
  struct Sum {
    std::uint64_t leaf = 0;
    std::uint64_t on_stack = 0;
    bool touched = false;
  };
  void add_up(std::vector<NodeId>& touched);

  const CallTree& tree_;
  // Scratch, all zero between calls: a fold costs what it touches.
  std::vector<std::uint64_t> leaf_, below_;  // by node
  std::vector<bool> is_touched_;
  std::vector<Sum> by_label_, by_edge_;
  std::vector<std::uint32_t> labels_, edges_;  // touched
};

}  // namespace dynprof
