// The clock of every time in a recording: CLOCK_MONOTONIC, as bpf_ktime_get_ns gives it, and its
// distance from CLOCK_REALTIME, which torch reads.
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

// CLOCK_REALTIME - CLOCK_MONOTONIC, to within half the time that one reading takes. A thread that
// is preempted between the two clocks would be off by a time slice: of several readings the one
// that took the shortest time counts.
inline std::int64_t realtime_offset_ns() {
  constexpr int kReadings = 5;
  std::int64_t offset = 0;
  std::uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < kReadings; ++i) {
    const std::uint64_t before = monotonic_ns();
    const std::uint64_t realtime = clock_ns(CLOCK_REALTIME);
    const std::uint64_t took = monotonic_ns() - before;
    if (took >= shortest) continue;
    shortest = took;
    offset = static_cast<std::int64_t>(realtime - (before + took / 2));
  }
  return offset;
}

}  // namespace dynprof
