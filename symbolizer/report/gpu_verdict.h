// Whether a job waited for its GPUs or they for it, and what its threads did meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/attribution/gpu_summary.h"
#include "symbolizer/report/cpu_use.h"
#include "symbolizer/report/sections.h"

namespace dynprof {

struct GpuVerdict {
  // As each process has them; 0: nothing is known of the times of GPU work.
  std::size_t devices = 0;
  std::size_t gpus = 0;       // the different ones among them
  std::size_t processes = 0;  // that have them
  GpuTimes times;             // of all of them
  std::uint64_t whole_ns() const { return times.busy_ns + times.idle_ns; }
  // While nothing had been launched, the threads that then launched: the lines of user code on their samples and
  // waits, most first. Empty where these are too few to tell.
  NamedTimes meanwhile;
  std::uint64_t meanwhile_ns = 0;  // all of it
};

// Of the whole recording.
GpuVerdict gpu_verdict(const Selection& selection);

// Of each region of `summary`, in its order, while a run of it was under way; of the first kMaxGpuRegionVerdicts.
inline constexpr std::size_t kMaxGpuRegionVerdicts = 32;
std::vector<GpuVerdict> gpu_region_verdicts(const Selection& selection, const GpuSummary& summary);

enum class GpuBound : std::uint8_t {
  kUnknown,  // too little work to tell
  kGpu,      // busy for nine tenths of the time
  kCpu,      // half of the idle time or more is before work that had not been launched
  kOther,    // idle before work that had been launched
};
GpuBound gpu_bound(const GpuVerdict& verdict);

// "CPU-bound: idle 41 % of 2.40 s, …"; "": too little work to tell.
std::string gpu_verdict_text(const GpuVerdict& verdict);

}  // namespace dynprof
