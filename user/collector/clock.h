// The clock of every time in a recording: CLOCK_MONOTONIC, as bpf_ktime_get_ns gives it.
#pragma once

#include <time.h>

#include <cstdint>

namespace dynprof {

inline std::uint64_t clock_ns(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000ULL +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }

}  // namespace dynprof
