// --gpu of `record`.
#pragma once

#include <cstdint>

namespace dynprof {

enum class GpuMode : std::uint8_t {
  kOff,
  kAuto,  // the library where it is mapped, else calls into CUDA where that is mapped
  kOn,    // the library, or an error
};

}  // namespace dynprof
