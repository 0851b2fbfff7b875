// Which parts of CUDA a process maps, and so how its GPU work can be recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "user/target/process.h"

namespace dynprof {

// Each sees more than the one before; a process moves up when it maps more:
//   kRuntime   calls into libcudart, while there is no driver
//   kDriver    calls into libcuda: every launch, also those of Triton and of libraries that bring
//              their own runtime
//   kLibrary   libdynprof_cupti.so: calls, and what they ran on the GPU
enum class GpuTier : std::uint8_t { kNone, kRuntime, kDriver, kLibrary };

struct CudaMappings {
  std::optional<Mapping> library, driver, runtime;
  GpuTier best() const;
};
CudaMappings find_cuda(const std::vector<Mapping>& mappings);

}  // namespace dynprof
