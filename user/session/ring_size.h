// Size of the ring buffer between the kernel side and user space.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <thread>

namespace dynprof {

// Room for two seconds of deep stacks from every CPU, so that a slow look-up loses nothing.
inline std::uint64_t ring_bytes(std::uint32_t frequency_hz) {
  constexpr std::uint64_t kDeepSample = 2048;  // some 90 Python and 60 native frames
  std::uint64_t wanted =
      2ULL * frequency_hz * std::max(1U, std::thread::hardware_concurrency()) * kDeepSample;
  return std::bit_ceil(std::clamp<std::uint64_t>(wanted, 4 << 20, 64 << 20));
}

}  // namespace dynprof
