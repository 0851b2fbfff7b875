// Which of torch's operators each sampled stack is in, from its native frames (operator_name.h). An operator that
// is called inside another one is in both. What is on the stack when the sample is taken: nothing is counted, and an
// operator shorter than the time between two samples is mostly missed.
//
// The dispatcher calls itself again for the same operator at each layer (autograd, then the CPU's kernel): frames
// of one operator right inside each other are one call.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "symbolizer/attribution/operator_name.h"
#include "symbolizer/attribution/resolved.h"
#include "symbolizer/profile/timeline.h"

namespace dynprof {

using OperatorId = std::uint32_t;
using CallId = StackId;
inline constexpr OperatorId kNoOperator = std::numeric_limits<OperatorId>::max();

class Operators {
 public:
  Operators(const Tables& tables, const ResolvedFrames& frames);
  Operators(const Operators&) = delete;
  Operators& operator=(const Operators&) = delete;

  const std::vector<OperatorName>& all() const { return names_; }
  bool empty() const { return names_.empty(); }

  // The operators that are open at a stack's leaf, as a stack of calls. 0: none.
  CallId call_of(StackId stack) const { return of_stack_[stack]; }
  CallId around(CallId call) const { return tree_.stacks[call].caller; }
  OperatorId operator_of(CallId call) const { return tree_.stacks[call].frame - 1; }
  // To lay them out in time as stacks are: stacks are calls, and frame n is operator n - 1.
  const StackIndex& stacks() const { return *stacks_; }

 private:
  std::vector<OperatorName> names_;
  Tables tree_;
  std::vector<CallId> of_stack_;
  std::optional<StackIndex> stacks_;
};

// Time in one operator, as samples show it.
struct OperatorSums {
  std::uint64_t self_ns = 0, total_ns = 0;  // of CPU; self: in no operator inside it
  std::uint64_t self_samples = 0, total_samples = 0;
  std::uint64_t wait_ns = 0;  // off the CPU in it or in one inside it
  void add(const OperatorSums& more);
};

// A share of samples, as likely between `low` and `high` as 19 to 1 (Wilson's interval).
struct ShareInterval {
  double low = 0, high = 0;
};
ShareInterval share_interval(std::uint64_t part, std::uint64_t whole);

}  // namespace dynprof
