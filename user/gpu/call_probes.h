// Probes on the functions of libcuda or libcudart that start work on a GPU: who launched what, without its times there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "user/gpu/cuda_mappings.h"
#include "user/gpu/gpu_kernel.h"

namespace dynprof {

class CallProbes {
 public:
  explicit CallProbes(pid_t pid) : pid_(pid) {}

  // On the driver where it is mapped, and on what tells the names of kernels that the runtime launches by it; else on the
  // runtime.
  Result<void> attach(const CudaMappings& cuda, GpuKernel& kernel);
  void remove();

  // A thread is about to launch a kernel by the runtime; and the function that stands for the kernel,
  // once it is in the driver. 0: it is there on its own. Stack pointers, of the driver's the lower half.
  void stub(std::uint32_t tid, std::uint64_t function, std::uint64_t sp);
  std::uint64_t take_stub(std::uint32_t tid, std::uint32_t sp);

 private:
  Result<void> attach_calls(const Mapping& mapping, bool driver, GpuKernel& kernel);
  void attach_stubs(const Mapping& runtime, GpuKernel& kernel);

  pid_t pid_;
  std::vector<Uprobe> probes_;
  struct Stub {
    std::uint64_t function, sp;
  };
  std::unordered_map<std::uint32_t, Stub> stubs_;  // by tid
};

}  // namespace dynprof
