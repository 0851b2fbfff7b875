// The names of kernels as the CUDA driver has them: a CUfunction points to memory of the driver in which the second word
// points to the kernel's name. That is not documented; it was so in driver 580 (CUDA 13.0) for the kernels of PyTorch,
// cuBLAS, cuDNN, cuFFT, cuSOLVER and Triton, and nothing says that it stays so. So a name is only shown where names that
// are known by other means agree (symbolizer/attribution/driver_kernel_names.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "user/target/remote_memory.h"

namespace dynprof {

class DriverNames {
 public:
  explicit DriverNames(pid_t pid) : memory_(pid) {}

  // Of the kernel with this handle, demangled; "": what is there is no name of a kernel. Read again when it is a second old,
  // since another module's kernel may have the handle by then. Valid until the next call.
  const std::string& of(std::uint64_t handle, std::uint64_t now_ns);

 private:
  struct Known {
    std::string mangled, name;
    std::uint64_t read_ns = 0;
  };

  std::string read(std::uint64_t handle);

  ProcessMemory memory_;
  std::unordered_map<std::uint64_t, Known> known_;
  std::size_t bytes_ = 0;  // of all names in it
};

}  // namespace dynprof
