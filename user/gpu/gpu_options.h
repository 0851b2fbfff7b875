// --gpu, --gpu-ranks and --all-launch-stacks of `record`.
#pragma once

#include <cstdint>

#include "user/gpu/rank_set.h"

namespace dynprof {

enum class GpuMode : std::uint8_t {
  kOff,
  kAuto,  // the library where it is mapped, else calls into CUDA where that is mapped
  kOn,    // the library is loaded where it is not, or an error
};

struct GpuOptions {
  GpuMode mode = GpuMode::kAuto;
  RankSet ranks;                   // that the library is loaded into
  bool all_launch_stacks = false;  // see GpuKernel
};

}  // namespace dynprof
