// How busy each GPU was with one process's work, and for what it was idle in between: work that had not been launched yet,
// which is the CPU's doing, or work that had been launched and did not run yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "symbolizer/attribution/gpu_work.h"

namespace dynprof {

// Nothing of the process ran on the device.
struct GpuGap {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;       // the next work begins
  std::uint64_t launched_ns = 0;  // it was launched then; 0: not known
  ThreadId thread = kNoThread;    // that launched it
  bool late() const { return launched_ns > begin_ns; }
};

struct GpuTimes {
  std::uint64_t busy_ns = 0;
  std::uint64_t idle_ns = 0;
  std::uint64_t late_ns = 0;  // of that: the next work had not been launched when it began
  GpuTimes& operator+=(const GpuTimes& more);
};

struct GpuLoad {
  std::int32_t pid = 0;
  std::uint32_t device = 0;
  std::uint64_t first_ns = 0;  // its first work begins
  std::uint64_t last_ns = 0;   // its last work ends
  GpuTimes times;              // between these
  std::vector<GpuGap> gaps;

  // Of a part of that time; without busy_ns.
  GpuTimes idle_in(std::uint64_t begin_ns, std::uint64_t end_ns) const;

  // The gaps that overlap a part of that time, cut to it.
  template <class Take>
  void for_each_gap_in(std::uint64_t begin_ns, std::uint64_t end_ns, const Take& take) const {
    if (end_ns <= begin_ns) return;  // in a recording that is wrong
    auto gap = std::partition_point(gaps.begin(), gaps.end(),
                                    [&](const GpuGap& one) { return one.end_ns <= begin_ns; });
    for (; gap != gaps.end() && gap->begin_ns < end_ns; ++gap)
      take(*gap, std::max(gap->begin_ns, begin_ns), std::min(gap->end_ns, end_ns));
  }
};

// By pid and device.
std::vector<GpuLoad> gpu_loads(const GpuWork& gpu);

}  // namespace dynprof
