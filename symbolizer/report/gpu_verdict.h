// Whether a job waited for its GPUs or they for it, and what its threads did meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "symbolizer/attribution/gpu_load.h"
#include "symbolizer/report/cpu_use.h"
#include "symbolizer/report/sections.h"

namespace dynprof {

struct GpuVerdict {
  std::size_t devices = 0;  // 0: nothing is known of the times of GPU work
  GpuTimes times;           // of all of them
  // While nothing had been launched, the threads that then launched: the lines of user code on their samples and
  // waits, most first. Empty where these are too few to tell.
  NamedTimes meanwhile;
  std::uint64_t meanwhile_ns = 0;  // all of it
};

GpuVerdict gpu_verdict(const Selection& selection);

// "CPU-bound: idle 41 % of 2.40 s, …"; "": too little work to tell.
std::string gpu_verdict_text(const GpuVerdict& verdict);

}  // namespace dynprof
