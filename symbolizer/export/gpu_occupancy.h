// How full a kernel launch makes a GPU, as far as the launch and the device say.
#pragma once

#include "symbolizer/recording/gpu_model.h"

namespace dynprof {

struct GpuOccupancy {
  double blocks_per_processor = 0;
  double warps_per_processor = 0;
  std::uint32_t percent = 0;  // of the warps a processor can hold; an estimate
};

// All 0 where the device is not known.
GpuOccupancy gpu_occupancy(const dynprof_gpu_kernel& kernel, const dynprof_gpu_device* device);

}  // namespace dynprof
