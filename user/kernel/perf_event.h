// Opens the perf events that pace the sampling: one per online CPU, for every process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

// Samples per second and CPU, where the user gives none. No divisor of common timer frequencies, so that
// samples do not follow a periodic program.
inline constexpr std::uint32_t kDefaultFrequencyHz = 99;

enum class SamplingEvent {
  kCpuClock,  // a timer of each CPU: a sample stands for one period of it
  kCycles,  // hardware cycles: sees code that runs with interrupts off, period adapted by the kernel
};

struct CpuEvent {
  int cpu = 0;
  UniqueFd fd;  // disabled until a program is attached
};

struct SamplingEvents {
  std::vector<CpuEvent> cpus;
  std::string name;  // "cpu-clock", "cycles"
  std::uint64_t period_ns = 0;
};

// kernel.perf_event_max_sample_rate, 0 where it cannot be read.
std::uint64_t max_sample_rate();

// "0-3,7", the kernel's way to list CPUs: at most 65,536 of them, and none of what cannot be read.
std::vector<int> parse_cpu_list(std::string_view text);
// Those on line; CPU 0 where the kernel does not say.
std::vector<int> online_cpus();

// Whether this kernel asks for CAP_SYS_ADMIN at every perf event, as Debian's do above
// kernel.perf_event_paranoid=2. Found by trying without it, in a thread of its own.
bool perf_events_need_admin();

// ENODEV: that CPU is not on line.
Result<UniqueFd> open_sampling_event(SamplingEvent event, std::uint32_t frequency_hz, int cpu);
// One per CPU that is on line.
Result<SamplingEvents> open_sampling_events(SamplingEvent event, std::uint32_t frequency_hz);

// A hardware watchpoint: fires when the thread reads or writes the 2 bytes at `address` (even), an
// instruction of a Python function, which the interpreter reads to execute it. Not armed until a program
// is attached. ENOSPC: a debugger or another program holds all of the thread's slots.
// `leader`: another watchpoint of the thread, with which this one is armed and disarmed. Each change interrupts the CPU
// that the thread runs on, so two at once cost it half.
Result<UniqueFd> open_instruction_watchpoint(pid_t tid, std::uint64_t address, int leader = -1);

}  // namespace dynprof
