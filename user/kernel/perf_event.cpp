#include "user/kernel/perf_event.h"

#include <fmt/format.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include "user/preflight/capabilities.h"
#include "user/target/descriptor_limit.h"

namespace dynprof {
namespace {

constexpr int kMaxCpus = 65536;

// Upstream kernels know up to 2; with Debian's and Ubuntu's patch 3 and 4 want CAP_SYS_ADMIN, which the
// message of a program without it is to say.
bool paranoid_above_upstream() {
  int level = 0;
  std::ifstream("/proc/sys/kernel/perf_event_paranoid") >> level;
  return level > 2;
}

const char* name_of(SamplingEvent event) {
  return event == SamplingEvent::kCycles ? "cycles" : "cpu-clock";
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int first = 0;
    auto [after, failed] = std::from_chars(at, end, first);
    if (failed != std::errc() || first < 0) break;
    int last = first;
    if (after < end && *after == '-') {
      auto range = std::from_chars(after + 1, end, last);
      if (range.ec != std::errc()) break;
      after = range.ptr;
    }
    for (int cpu = first; cpu <= last && cpu < kMaxCpus && cpus.size() < kMaxCpus; cpu++)
      cpus.push_back(cpu);
    if (cpus.size() >= kMaxCpus || after == end || *after != ',') break;
    at = after + 1;
  }
  return cpus;
}

std::vector<int> online_cpus() {
  std::string text;
  std::getline(std::ifstream("/sys/devices/system/cpu/online"), text);
  std::vector<int> cpus = parse_cpu_list(text);
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::uint64_t max_sample_rate() {
  unsigned long long rate = 0;
  if (std::FILE* file = std::fopen("/proc/sys/kernel/perf_event_max_sample_rate", "re")) {
    if (std::fscanf(file, "%llu", &rate) != 1) rate = 0;
    std::fclose(file);
  }
  return rate;
}

Result<UniqueFd> open_sampling_event(SamplingEvent event, std::uint32_t frequency_hz, int cpu) {
  perf_event_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.size = sizeof attributes;
  attributes.disabled = 1;  // attaching the program enables it
  if (event == SamplingEvent::kCycles) {
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.config = PERF_COUNT_HW_CPU_CYCLES;
    attributes.freq = 1;
    attributes.sample_freq = frequency_hz;
  } else {
    attributes.type = PERF_TYPE_SOFTWARE;
    attributes.config = PERF_COUNT_SW_CPU_CLOCK;
    attributes.sample_period = 1'000'000'000ULL / frequency_hz;
    attributes.exclude_idle = 1;  // nothing to look at; not every hardware counter knows this
  }
  UniqueFd fd(static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)));
  if (fd) return fd;
  const int problem = errno;
  std::string hint;
  if (problem == ENOENT || problem == EOPNOTSUPP)
    hint = "this machine has no such counter: use -e cpu-clock";
  else if (problem == EACCES || problem == EPERM)
    hint = paranoid_above_upstream() ? "sudo sysctl kernel.perf_event_paranoid=2"
                                     : "run it with sudo, or grant CAP_PERFMON";
  else if (problem == EMFILE)
    hint = kRaiseDescriptorLimit;
  errno = problem;
  return errno_error(fmt::format("cannot open the {} event on CPU {}", name_of(event), cpu), hint);
}

bool perf_events_need_admin() {
  bool refused = false;
  std::thread([&refused] {
    drop_capabilities(false);  // of this thread
    auto event = open_sampling_event(SamplingEvent::kCpuClock, 1, online_cpus().front());
    const int problem = event ? 0 : event.error().errno_value;
    refused = problem == EACCES || problem == EPERM;
  }).join();
  return refused;
}

Result<SamplingEvents> open_sampling_events(SamplingEvent event, std::uint32_t frequency_hz) {
  SamplingEvents events;
  events.period_ns = 1'000'000'000ULL / frequency_hz;
  events.name = name_of(event);
  for (int cpu : online_cpus()) {
    auto fd = open_sampling_event(event, frequency_hz, cpu);
    if (!fd && fd.error().errno_value == ENODEV) continue;  // went off line meanwhile
    if (!fd) return std::move(fd).error();
    events.cpus.push_back({cpu, std::move(*fd)});
  }
  return events;
}

Result<UniqueFd> open_instruction_watchpoint(pid_t tid, std::uint64_t address, int leader) {
  perf_event_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_BREAKPOINT;
  attributes.bp_type = HW_BREAKPOINT_RW;
  attributes.bp_addr = address;
  attributes.bp_len = HW_BREAKPOINT_LEN_2;
  attributes.sample_period = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.disabled = 1;
  UniqueFd fd(static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, tid, -1, leader, PERF_FLAG_FD_CLOEXEC)));
  if (!fd.valid()) return errno_error(fmt::format("cannot set a watchpoint on thread {}", tid));
  return fd;
}

}  // namespace dynprof
