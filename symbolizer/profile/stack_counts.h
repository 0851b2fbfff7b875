// All samples of a recording, summed by (compile, stack, thread, phase): the one pass over the
// samples that every table, pstats file and folded file is made from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/waits.h"

namespace dynprof {

struct StackCount {
  CompileIndex compile = kNoCompile;
  StackId stack = 0;
  ThreadId thread = 0;
  Phase phase = Phase::kRuntime;
  std::uint64_t samples = 0;  // of `waits`: how many of them
  std::uint64_t ns = 0;       // what they stand for: time on a CPU, or waited
};

class StackCounts {
 public:
  StackCounts(const Attribution& attribution, const Waits& waits);

  // Ordered by compile (kNoCompile last), then stack, thread and phase.
  std::span<const StackCount> all() const { return counts_; }
  std::span<const StackCount> of(CompileIndex compile) const;
  // Time off the CPU, likewise; apart, since a wait is no sample. Preempted threads are in it.
  std::span<const StackCount> waits() const { return wait_counts_; }
  std::span<const StackCount> waits_of(CompileIndex compile) const;
  const Waits& recorded_waits() const { return recorded_waits_; }
  // Samples whose stack is not whole (kSampleIncomplete).
  std::uint64_t incomplete() const { return incomplete_; }

 private:
  std::vector<StackCount> counts_, wait_counts_;
  const Waits& recorded_waits_;
  std::uint64_t incomplete_ = 0;
};

}  // namespace dynprof
