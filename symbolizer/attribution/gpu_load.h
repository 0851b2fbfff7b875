// How busy each GPU was with one process's work, and for what it was idle in between: work that had not been launched yet,
// which is the CPU's doing, or work that had been launched and did not run yet.
#pragma once

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
  GpuTimes times;  // from its first work to the end of its last
  std::vector<GpuGap> gaps;

  // Of a part of that time; without busy_ns.
  GpuTimes idle_in(std::uint64_t begin_ns, std::uint64_t end_ns) const;
};

// By pid and device.
std::vector<GpuLoad> gpu_loads(const GpuWork& gpu);

}  // namespace dynprof
