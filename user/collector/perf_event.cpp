#include "user/collector/perf_event.h"

#include <fmt/format.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace dynprof {
namespace {

// "0-3,7": the kernel's list of CPUs that are on line.
std::vector<int> online_cpus() {
  std::vector<int> cpus;
  std::FILE* file = std::fopen("/sys/devices/system/cpu/online", "re");
  if (file) {
    int first = 0;
    while (cpus.size() < 65536 && std::fscanf(file, "%d", &first) == 1) {
      int last = first;
      int separator = std::fgetc(file);
      if (separator == '-') {
        if (std::fscanf(file, "%d", &last) != 1) break;
        separator = std::fgetc(file);
      }
      for (int cpu = first; cpu <= last && cpus.size() < 65536; cpu++) cpus.push_back(cpu);
      if (separator != ',') break;
    }
    std::fclose(file);
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

}  // namespace

std::uint64_t max_sample_rate() {
  unsigned long long rate = 0;
  if (std::FILE* file = std::fopen("/proc/sys/kernel/perf_event_max_sample_rate", "re")) {
    if (std::fscanf(file, "%llu", &rate) != 1) rate = 0;
    std::fclose(file);
  }
  return rate;
}

Result<SamplingEvents> open_sampling_events(SamplingEvent event, std::uint32_t frequency_hz) {
  perf_event_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.size = sizeof attributes;
  attributes.disabled = 1;  // attaching the program enables it
  SamplingEvents events;
  events.period_ns = 1'000'000'000ULL / frequency_hz;
  if (event == SamplingEvent::kCycles) {
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.config = PERF_COUNT_HW_CPU_CYCLES;
    attributes.freq = 1;
    attributes.sample_freq = frequency_hz;
    events.name = "cycles";
  } else {
    attributes.type = PERF_TYPE_SOFTWARE;
    attributes.config = PERF_COUNT_SW_CPU_CLOCK;
    attributes.sample_period = events.period_ns;
    attributes.exclude_idle = 1;  // nothing to look at; not every hardware counter knows this
    events.name = "cpu-clock";
  }
  for (int cpu : online_cpus()) {
    auto fd = static_cast<int>(
        syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC));
    if (fd < 0) {
      if (errno == ENODEV) continue;  // went off line meanwhile
      std::string hint;
      if (errno == ENOENT || errno == EOPNOTSUPP)
        hint = "this machine has no such counter: use -e cpu-clock";
      else if (errno == EACCES || errno == EPERM)
        hint = "run it with sudo, or grant CAP_PERFMON";
      return errno_error(fmt::format("cannot open the {} event on CPU {}", events.name, cpu), hint);
    }
    events.fds.emplace_back(fd);
  }
  return events;
}

static Result<UniqueFd> open_watchpoint(pid_t tid, std::uint64_t address, std::uint32_t access,
                                        std::uint64_t bytes) {
  perf_event_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_BREAKPOINT;
  attributes.bp_type = access;
  attributes.bp_addr = address;
  attributes.bp_len = bytes;
  attributes.sample_period = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.disabled = 1;
  UniqueFd fd(static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, tid, -1, -1, PERF_FLAG_FD_CLOEXEC)));
  if (!fd.valid()) return errno_error(fmt::format("cannot set a watchpoint on thread {}", tid));
  return fd;
}

Result<UniqueFd> open_write_watchpoint(pid_t tid, std::uint64_t address) {
  return open_watchpoint(tid, address, HW_BREAKPOINT_W, HW_BREAKPOINT_LEN_8);
}

Result<UniqueFd> open_instruction_watchpoint(pid_t tid, std::uint64_t address) {
  return open_watchpoint(tid, address, HW_BREAKPOINT_RW, HW_BREAKPOINT_LEN_2);
}

}  // namespace dynprof
