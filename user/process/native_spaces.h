// Native unwinding for the processes of a session: which space of tables each has, and when it is looked at
// again.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "bpf/events.h"
#include "user/kernel/kernel_side.h"
#include "user/process/followed_process.h"
#include "user/stacks/native_unwind.h"

namespace dynprof {

class NativeSpaces {
 public:
  static std::unique_ptr<NativeSpaces> start(const KernelSide& kernel, const NativeLimits& limits) {
    auto spaces = std::make_unique<NativeSpaces>();
    spaces->unwind_ =
        NativeUnwind::start(kernel.map_fd("unwind_tables"), kernel.map_fd("native_spaces"), limits);
    return spaces;
  }

  void give(FollowedProcess& process) {
    process.native().set_space(unwind_->space_of(process.pid()));
    unwind_->look(process.native().space());
  }
  // A native stack was cut where the kernel side knows no code, or has no table for it.
  void look_for_code(const dp_sample& sample, FollowedProcess& process) {
    if (sample.native_end != DP_COUNT_NATIVE_NO_MAPPING &&
        sample.native_end != DP_COUNT_NATIVE_NO_TABLE)
      return;
    // A child that was forked has mapped something of its own.
    const NativeSpaceRef& space = process.native().space();
    if (space && space->pid != process.pid()) {
      process.native().set_space(unwind_->space_of(process.pid()));
      (void)process.entry().update();
    }
    unwind_->look(process.native().space());
  }
  void settle(std::chrono::milliseconds wait) { unwind_->settle(wait); }
  std::string take_problem() { return unwind_->take_problem(); }

 private:
  std::unique_ptr<NativeUnwind> unwind_;
};

}  // namespace dynprof
