// What every exporter and report of one recording shares: its samples summed, its functions, its
// stacks by function, and the profiles made from them.
#pragma once

#include <span>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/profile/functions.h"
#include "symbolizer/profile/profile.h"
#include "symbolizer/profile/stack_counts.h"

namespace dynprof {

class FoldedRecording {
 public:
  explicit FoldedRecording(const Attribution& attribution);

  const Attribution& attribution() const { return attribution_; }
  const StackCounts& counts() const { return counts_; }
  const Functions& functions() const { return functions_; }

  // Everything; stacks from their root.
  Profile session();
  // One compile alone: stacks begin at the function of torch that compiles, as the profile that
  // TORCH_COMPILE_CPROFILE makes does.
  Profile of(CompileIndex compile);
  Profile inside_compile(std::span<const StackCount> counts);  // the same for a part of one

 private:
  const Attribution& attribution_;
  StackCounts counts_;
  Functions functions_;
  CallTree whole_tree_, compile_tree_;
  Folder whole_, compiles_;
};

}  // namespace dynprof
