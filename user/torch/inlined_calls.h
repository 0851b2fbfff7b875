// The user functions Dynamo is tracing on one thread, outermost first, from the hits of the watchpoints
// on the function torch enters for each. A call left by an exception sends nothing: it is over when a
// later begin does not lie in it, an outer one ends, or the phase around it does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bpf/events.h"

namespace dynprof {

class InlinedCalls {
 public:
  std::size_t size() const { return open_.size(); }
  // The hit is one more read of the innermost call's first instruction, no call of its own.
  bool is_repeat(const dp_inline_event& begin) const;
  // How many of the open calls this new one lies in; the others were left.
  std::size_t around(const dp_inline_event& begin) const;
  // How many are open once this one ended, itself included; 0: it began before we watched.
  std::size_t with(const dp_inline_event& end) const;
  // How many began while no more than `phases` phases were open.
  std::size_t within(std::size_t phases) const;

  void push(const dp_inline_event& begin, std::size_t phases);
  void pop() { open_.pop_back(); }

 private:
  struct Call {
    std::uint64_t frame;
    std::vector<std::uint64_t> callers;  // dp_frame_key of the frame that made it, its caller ...
    std::uint64_t code;
    std::uint64_t ip;
    std::uint64_t begin_ns;
    std::size_t phases;  // open around it
  };

  static bool lies_in(const Call& outer, const std::vector<std::uint64_t>& callers, bool whole);

  std::vector<Call> open_;
};

}  // namespace dynprof
