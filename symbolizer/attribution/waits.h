// Whose time a wait was: per compile, how long its thread ran, waited, and could have run without a
// CPU, from begin to end; and which compile each wait lies in.
//
// The three are measured apart. Waits and runnable time are the recorded intervals that overlap with
// the compile. Time on a CPU is the kernel side's own sum per thread (thread_clocks.h). So their sum says
// whether anything is missing.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

// What a compile waited for in one place: the innermost Python frame, else the innermost native one.
struct WaitPlace {
  WaitKind kind = WaitKind::kOther;
  FrameId frame = 0;
  bool has_frame = false;
  std::uint64_t ns = 0;  // without the runnable part
  std::uint64_t count = 0;
};

struct CompileWaits {
  bool known = false;         // its thread's switches were seen from its begin to its end
  std::uint64_t wall_ns = 0;  // what was looked at; the other times share it out
  std::uint64_t on_cpu_ns = 0;
  std::uint64_t runnable_ns = 0;
  std::uint64_t wait_ns = 0;
  std::uint64_t named_ns = 0;  // of that, with a kind and a stack
  std::array<std::uint64_t, kWaitKinds> by_kind{};
  std::vector<WaitPlace> places;  // longest first; nested compiles' are in it
};

class Waits {
 public:
  explicit Waits(const Attribution& attribution);

  bool empty() const { return owners_.empty(); }
  // The innermost compile a wait lies in. By index into Tables::waits.
  struct Owner {
    CompileIndex compile = kNoCompile;
    Phase phase = Phase::kRuntime;
  };
  const Owner& owner(std::size_t wait) const { return owners_[wait]; }
  // The wait, cut where a compile begins or ends: as many parts as it lies in compiles. Summed up over a
  // compile they are its waits and its runnable time.
  struct Part {
    Owner owner;
    std::uint64_t count = 0;
    std::uint64_t ns = 0;  // the runnable part included
  };
  std::vector<Part> parts(const Tables& tables, std::size_t wait) const;
  const CompileWaits& of(CompileIndex compile) const& { return compiles_[compile]; }
  const CompileWaits& of(CompileIndex compile) const&& = delete;  // it would dangle
  // The innermost frame of a stack that is Python's, else that is not the kernel's; false: none.
  static bool place_of(const Tables& tables, StackId stack, FrameId& frame);

 private:
  struct Row;
  void own(const Attribution& attribution, const std::vector<Row>& rows);
  Owner owner_at(const Attribution& attribution, const Row& row, std::size_t thread,
                 std::uint64_t at_ns) const;
  void sum(const Attribution& attribution, const Row& row, CompileIndex compile);

  std::vector<Owner> owners_;  // by wait
  // Of waits that reach beyond the compile they begin in: how long each part is, in its order.
  struct Cut {
    Owner owner;
    std::uint64_t ns = 0;
  };
  std::unordered_map<std::size_t, std::vector<Cut>> cuts_;
  std::vector<CompileWaits> compiles_;
};

}  // namespace dynprof
