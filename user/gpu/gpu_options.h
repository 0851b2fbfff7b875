// --gpu, --gpu-ranks, --all-launch-stacks and --sampled-launch-stacks of `record`.
#pragma once

#include <cstdint>

#include "user/gpu/rank_set.h"

namespace dynprof {

enum class GpuMode : std::uint8_t {
  kOff,
  kAuto,  // the library where it is mapped, else calls into CUDA where that is mapped
  kOn,    // the library is loaded where it is not, or an error
};

enum class LaunchStackMode : std::uint8_t {
  kEach,      // of each launch
  kEachRead,  // the same, and all code objects of it are read, also if the stack was sent a moment ago
  kSampled,  // of about 1,000 launches a second of each thread (DYNPROF_GPU_SAMPLED_LAUNCH_NS)
};

struct GpuOptions {
  GpuMode mode = GpuMode::kAuto;
  RankSet ranks;  // that the library is loaded into
  LaunchStackMode launch_stacks = LaunchStackMode::kEach;
};

}  // namespace dynprof
