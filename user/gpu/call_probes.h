// Probes on the functions of libcuda or libcudart that start work on a GPU: who launched what, without its times there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "user/gpu/cuda_mappings.h"
#include "user/gpu/driver_names.h"
#include "user/gpu/gpu_kernel.h"

namespace dynprof {

class CallProbes {
 public:
  explicit CallProbes(pid_t pid) : pid_(pid), names_(pid) {}

  // On the driver where it is mapped, and on what tells the names of kernels that the runtime launches by it; else on the
  // runtime.
  Result<void> attach(const CudaMappings& cuda, GpuKernel& kernel);
  void remove();

  // A thread is about to launch a kernel by the runtime; and the function that stands for the kernel,
  // once it is in the driver. 0: it is there on its own. Stack pointers, of the driver's the lower half.
  void stub(std::uint32_t tid, std::uint64_t function, std::uint64_t sp);
  std::uint64_t take_stub(std::uint32_t tid, std::uint32_t sp);

  // What the driver calls the kernel with this handle; "": it is not known. `by_runtime`: take_stub() knew a function. After
  // many such launches whose kernels the driver has a name of, the probes for these functions are removed: each launch
  // by the runtime hits two otherwise. Valid until the next call.
  const std::string& driver_name(std::uint64_t handle, bool by_runtime, std::uint64_t now_ns);

 private:
  Result<void> attach_calls(const Mapping& mapping, bool driver, GpuKernel& kernel);
  void attach_stubs(const Mapping& runtime, GpuKernel& kernel);

  pid_t pid_;
  DriverNames names_;
  std::vector<Uprobe> probes_, stub_probes_;
  unsigned named_ = 0;  // launches by the runtime in a row that the driver had a name of
  struct Stub {
    std::uint64_t function, sp;
  };
  std::unordered_map<std::uint32_t, Stub> stubs_;  // by tid
};

}  // namespace dynprof
