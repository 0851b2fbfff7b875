// The kernel side of GPU tracing (bpf/gpu.bpf.c): loaded when the first process is found that has
// something to trace, beside what KernelSide loads, whose maps and consumer it uses.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "user/gpu/gpu_options.h"
#include "user/kernel/kernel_side.h"

namespace dynprof {

enum class GpuProbe : std::uint8_t { kLaunch, kBatch, kName, kStatus };

class GpuKernel {
 public:
  // Its events come out of kernel.consume().
  static Result<std::unique_ptr<GpuKernel>> load(KernelSide& kernel, LaunchStackMode stacks);
  virtual ~GpuKernel() = default;

  // On one of the library's USDT probes.
  virtual Result<Uprobe> attach(GpuProbe probe, const UprobePlace& place) = 0;
  // On a function of CUDA's; the cookie is what its hits are reported as: a DYNPROF_GPU_CALL, and
  // DP_GPU_COOKIE_ARGUMENT where an argument stands for the kernel. `stub`: reported as dp_gpu_stub instead.
  virtual Result<Uprobe> attach_call(const UprobePlace& place, bool stub) = 0;
};

}  // namespace dynprof
