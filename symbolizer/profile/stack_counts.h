// All samples of a recording, summed by (compile, stack, thread, phase): the one pass over the
// samples that every table, pstats file and folded file is made from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

struct StackCount {
  CompileIndex compile = kNoCompile;
  StackId stack = 0;
  ThreadId thread = 0;
  Phase phase = Phase::kRuntime;
  std::uint64_t samples = 0;
};

class StackCounts {
 public:
  explicit StackCounts(const Attribution& attribution);

  // Ordered by compile (kNoCompile last), then stack, thread and phase.
  std::span<const StackCount> all() const { return counts_; }
  std::span<const StackCount> of(CompileIndex compile) const;

 private:
  std::vector<StackCount> counts_;
};

}  // namespace dynprof
