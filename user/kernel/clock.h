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

// For poll(2): how many milliseconds there are until then, `at_most` if more.
inline int ms_until(std::uint64_t time_ns, int at_most) {
  const std::uint64_t now = monotonic_ns();
  if (time_ns <= now) return 0;
  const std::uint64_t ms = (time_ns - now + 999'999) / 1'000'000;
  return ms < static_cast<std::uint64_t>(at_most) ? static_cast<int>(ms) : at_most;
}

}  // namespace dynprof
