// A followed process as the kernel side knows it (dp_process), made from what is known of it here.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "bpf/targets.h"
#include "symbolizer/base/result.h"
#include "user/kernel/kernel_side.h"
#include "user/process/native_addresses.h"
#include "user/process/process_python.h"
#include "user/process/torch_finder.h"

namespace dynprof {

class KernelEntry {
 public:
  // `flags`: DP_PROCESS_FOLLOW_FORKS and DP_PROCESS_GPU_WORK, or not.
  KernelEntry(pid_t pid, std::uint32_t flags, KernelSide& kernel, const ProcessPython& python,
              const NativeAddresses& native, const TorchFinder& torch)
      : pid_(pid),
        flags_(flags),
        kernel_(kernel),
        python_(python),
        native_(native),
        torch_(torch) {}

  // From here on the kernel side follows the process; a child whose fork it saw it follows already.
  Result<void> introduce() const;
  // After a change of what it is made from.
  Result<void> update() const;
  // Most work on a GPU is known to be of a compile by the run that launched it: from now on more runs of compiled
  // regions are recorded (DP_PROCESS_GPU_WORK).
  void expect_gpu_work();

 private:
  dp_process process() const;

  pid_t pid_;
  std::uint32_t flags_;
  KernelSide& kernel_;
  const ProcessPython& python_;
  const NativeAddresses& native_;
  const TorchFinder& torch_;
};

}  // namespace dynprof
