// How the CPU time of the recording, or of the whole machine while it ran, was divided.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/report/sections.h"

namespace dynprof {

// CPU time by program, most first. Names are not escaped.
using NamedTimes = std::vector<std::pair<std::string, std::uint64_t>>;

struct CpuUse {
  // The processes that compile; those they started to compile; all others. Without `machine`, the others are those
  // recorded.
  std::uint64_t target_ns = 0, helper_ns = 0, other_ns = 0;
  NamedTimes others;
  // The rest is of the machine, where the recording has it.
  bool machine = false;
  std::uint32_t cpus = 0;
  std::uint64_t own_ns = 0, idle_ns = 0;
  std::uint64_t whole_ns() const { return target_ns + helper_ns + other_ns + own_ns + idle_ns; }
};

CpuUse cpu_use(const Selection& selection);

}  // namespace dynprof
