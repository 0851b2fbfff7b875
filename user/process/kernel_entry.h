// A followed process as the kernel side knows it (dp_process), made from what is known of it here.
#pragma once

#include "bpf/targets.h"
#include "symbolizer/base/result.h"
#include "user/kernel/kernel_side.h"
#include "user/process/native_addresses.h"
#include "user/process/process_python.h"
#include "user/process/torch_finder.h"

namespace dynprof {

class KernelEntry {
 public:
  KernelEntry(pid_t pid, bool follow_forks, KernelSide& kernel, const ProcessPython& python,
              const NativeAddresses& native, const TorchFinder& torch)
      : pid_(pid),
        follow_forks_(follow_forks),
        kernel_(kernel),
        python_(python),
        native_(native),
        torch_(torch) {}

  // From here on the kernel side follows the process; a child whose fork it saw it follows already.
  Result<void> introduce() const;
  // After a change of what it is made from.
  Result<void> update() const;

 private:
  dp_process process() const;

  pid_t pid_;
  bool follow_forks_;
  KernelSide& kernel_;
  const ProcessPython& python_;
  const NativeAddresses& native_;
  const TorchFinder& torch_;
};

}  // namespace dynprof
