// From samples to slices: what a thread was seen doing over time. One pass, and memory grows with
// what is open at once, never with the number of samples.
//
// A slice begins at the sample that first shows it. It ends at the next sample of its thread, if
// that one comes within two periods and does not show it any more, else one period after the last
// sample that did: a gap is never bridged, because there was no sample. Slices of one row nest strictly: a
// child begins at least 1 ns after its parent (viewers that sort by begin alone then agree about
// which is inside), so the frames of one sample are spread over as many nanoseconds; what has no
// length left is dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

// Facts about a recording's tables that every row needs.
class StackIndex {
 public:
  explicit StackIndex(const Tables& tables);
  // Frames from the root to this one, 0 for the empty stack. What only a damaged file has, a caller
  // after its callee or a stack without end, counts as the empty stack.
  std::uint32_t depth(StackId stack) const { return depths_[stack]; }
  StackId caller(StackId stack) const { return depths_[stack] > 1 ? nodes_[stack].caller : 0; }
  FrameId frame(StackId stack) const { return nodes_[stack].frame; }
  // Equal for two frames exactly when they are in the same function, both inlined or neither.
  std::uint32_t function(StackId stack) const { return functions_[nodes_[stack].frame]; }
  std::uint32_t function_of(FrameId frame) const { return functions_[frame]; }
  std::size_t function_count() const { return function_count_; }

 private:
  const std::vector<StackNode>& nodes_;
  std::vector<std::uint32_t> depths_;     // by StackId
  std::vector<std::uint32_t> functions_;  // by FrameId
  std::size_t function_count_ = 0;
};

inline constexpr FrameId kRootMissing = std::numeric_limits<FrameId>::max();

struct FrameSlice {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  FrameId frame = 0;  // as in its first sample; kRootMissing: stands for the frames that were cut
  std::uint32_t depth = 0;
};

// The stack slices of one thread.
class FrameRow {
 public:
  using Emit = std::function<void(const FrameSlice&)>;
  FrameRow(const StackIndex& index, std::uint64_t period_ns);
  // `skip` frames at the root side are left out. Samples in time order; an earlier one counts as now.
  void add(std::uint64_t time_ns, StackId stack, std::uint32_t skip, bool root_missing,
           const Emit& emit);
  // The thread leaves the CPU at `begin_ns`, in `stack`, until `end_ns`: what it had called goes on
  // meanwhile, and the next sample counts from its return. `keeps_stack`: it is where it was (it was
  // preempted), whatever `stack` says. Returns where a slice of the wait itself begins, above all of
  // them.
  std::uint64_t wait(std::uint64_t begin_ns, std::uint64_t end_ns, StackId stack,
                     std::uint32_t skip, bool root_missing, bool keeps_stack, const Emit& emit);
  // Ends everything, as before a gap.
  void close(const Emit& emit);

 private:
  struct Open {
    std::uint64_t begin_ns;
    StackId stack;  // node in the newest sample
    FrameId frame;  // in the first
    std::uint32_t function;
  };
  void cut(std::size_t keep, std::uint64_t end_ns, const Emit& emit);

  const StackIndex& index_;
  std::uint64_t period_ns_;
  std::vector<Open> open_;
  std::vector<StackId> added_;  // scratch: the new stack, leaf first, down to what is shared
  std::uint64_t last_ns_ = 0;
  bool returned_ = false;  // from a wait, at last_ns_: what it shows ended then
  StackId last_stack_ = 0;
  std::uint32_t last_skip_ = 0;
  bool last_root_missing_ = false;
};

struct SpanSlice {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  CompileIndex compile = kNoCompile;
  bool is_phase = false;
  Phase phase = Phase::kRuntime;
};

// Compiles and their phases of one thread. They stand in a row of their own, beside the stack
// slices, because they cannot nest with those: a compile goes on while nothing is sampled (its
// thread waits for g++) where frames are cut, and a phase changes in the middle of frames that stay.
// A compile spans from its first sample to its last, gaps included; a phase is cut at gaps.
class SpanRow {
 public:
  using Emit = std::function<void(const SpanSlice&)>;
  SpanRow(const std::vector<Compile>& compiles, std::uint64_t period_ns);
  void add(std::uint64_t time_ns, CompileIndex compile, Phase phase, const Emit& emit);
  void close(const Emit& emit);

 private:
  struct Open {
    CompileIndex compile;
    std::uint64_t begin_ns;
    std::uint64_t last_ns;    // last sample in it or in a compile inside it
    std::uint64_t inside_ns;  // where the last slice inside it ended
  };
  void pop(std::uint64_t now_ns, const Emit& emit);
  void end_phase(std::uint64_t now_ns, const Emit& emit);
  std::uint64_t end_of(std::uint64_t last_ns, std::uint64_t now_ns) const;
  bool is_open(CompileIndex compile) const;

  const std::vector<Compile>& compiles_;
  std::uint64_t period_ns_;
  std::vector<Open> open_;
  bool in_phase_ = false;
  Phase phase_ = Phase::kRuntime;
  std::uint64_t phase_begin_ns_ = 0;
  std::uint64_t phase_last_ns_ = 0;
  std::uint64_t now_ns_ = 0;
};

// The sampling period to draw with: a recording that gives none, or a senseless one, gets a
// plausible value. At most 10 s.
std::uint64_t drawing_period_ns(const Meta& meta);

}  // namespace dynprof
