// Opens the perf events that pace the sampling: one per online CPU, for every process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

enum class SamplingEvent {
  kCpuClock,  // a timer of each CPU: a sample stands for one period of it
  kCycles,  // hardware cycles: sees code that runs with interrupts off, period adapted by the kernel
};

struct SamplingEvents {
  std::vector<UniqueFd> fds;  // one per CPU, disabled until a program is attached and enabled
  std::string name;           // "cpu-clock", "cycles"
  std::uint64_t period_ns = 0;
};

// kernel.perf_event_max_sample_rate, 0 where it cannot be read.
std::uint64_t max_sample_rate();

Result<SamplingEvents> open_sampling_events(SamplingEvent event, std::uint32_t frequency_hz);

// A hardware watchpoint: fires when the thread writes to the 8 bytes at `address`. Not armed until a
// program is attached. ENOSPC: a debugger or somebody else holds all of the thread's slots.
Result<UniqueFd> open_write_watchpoint(pid_t tid, std::uint64_t address);
// Likewise when it reads or writes the 2 bytes at `address` (even): an instruction of a Python
// function, which the interpreter reads to execute it.
Result<UniqueFd> open_instruction_watchpoint(pid_t tid, std::uint64_t address);

}  // namespace dynprof
