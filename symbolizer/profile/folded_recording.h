// What every exporter and report of one recording shares: its samples summed, its functions, its
// stacks by function, and the profiles made from them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/process_tree.h"
#include "symbolizer/profile/functions.h"
#include "symbolizer/profile/profile.h"
#include "symbolizer/profile/stack_counts.h"

namespace dynprof {

class FoldedRecording {
 public:
  // `cpu_only`: the profile of a compile is of its samples alone, without what it waited.
  explicit FoldedRecording(const Attribution& attribution, bool cpu_only = false);

  const Attribution& attribution() const { return attribution_; }
  const StackCounts& counts() const { return counts_; }
  // What a profile of the compile is made of: its samples, and its waits unless `cpu_only`.
  std::vector<StackCount> wall_counts(CompileIndex compile) const;
  bool cpu_only() const { return cpu_only_; }
  const Functions& functions() const { return functions_; }
  // Made when it is first asked for: it goes through all samples.
  const ProcessTree& processes();

  // Everything; stacks from their root.
  Profile session();
  // One compile alone, by wall time of its thread: the time samples stand for, and waits.
  // Stacks begin at the function of torch that compiles, as the profile that TORCH_COMPILE_CPROFILE
  // makes does.
  Profile of(CompileIndex compile);
  Profile inside_compile(std::span<const StackCount> counts);  // the same for a part of one

 private:
  const Attribution& attribution_;
  bool cpu_only_;
  StackCounts counts_;
  Functions functions_;
  CallTree whole_tree_, compile_tree_;
  Folder whole_, compiles_;
  std::optional<ProcessTree> processes_;
};

}  // namespace dynprof
