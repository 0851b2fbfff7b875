// Perf events: each is opened, disabled, and closed again.
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "user/doctor/probing.h"
#include "user/kernel/perf_event.h"
#include "user/kernel/uprobes.h"

namespace dynprof {
namespace {

template <class T>
int problem_of(const Result<T>& result) {
  return result ? 0 : result.error().errno_value;
}

Check cpu_clock_check(const OwnRights& rights) {
  return judge_trial(
      {.name = "cpu-clock",
       .works = "a sampling event of a CPU was opened: samples",
       .fails = "no sampling event of a CPU can be opened",
       .consequence = "nothing can be sampled",
       .fix = rights.admin ? "in a container: allow perf_event_open in its seccomp profile"
                           : "sudo sysctl kernel.perf_event_paranoid=2"},
      problem_of(open_sampling_event(SamplingEvent::kCpuClock, kDefaultFrequencyHz,
                                     online_cpus().front())),
      rights.load_programs);
}

// Not degraded where there are none: nothing uses them unless asked to.
Check cycles_check(const OwnRights& rights) {
  return judge_trial({.name = "hardware-cycles",
                      .works = "a cycles event was opened: -e cycles would work",
                      .fails = "this machine has no cycles event",
                      .failed = CheckState::kOk,
                      .consequence = "-e cycles would not work, the default (cpu-clock) does"},
                     problem_of(open_sampling_event(SamplingEvent::kCycles, kDefaultFrequencyHz,
                                                    online_cpus().front())),
                     rights.load_programs);
}

// On a word of this program, which nothing accesses.
Check watchpoint_check(const OwnRights& rights) {
  alignas(8) static std::uint64_t word = 0;
  auto opened = open_instruction_watchpoint(static_cast<pid_t>(syscall(SYS_gettid)),
                                            reinterpret_cast<std::uint64_t>(&word));
  Check check =
      judge_trial({.name = "watchpoints",
                   .works = "one was opened: exact calls of the user functions that Dynamo traces",
                   .fails = "none can be opened",
                   .failed = CheckState::kDegraded,
                   .consequence = "calls of the user functions that Dynamo traces come from "
                                  "samples, not exact"},
                  problem_of(opened), rights.load_programs);
  if (problem_of(opened) == ENOSPC) check.fix = "end the debugger or profiler that holds them all";
  return check;
}

// The kernel checks permission first, then finds that there is no such file: nothing is ever probed.
int try_uprobe(std::uint32_t type) {
  perf_event_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.size = sizeof attributes;
  attributes.type = type;
  attributes.disabled = 1;
  static constexpr char kNoFile[] = "/proc/self/no-such-file";
  attributes.uprobe_path = reinterpret_cast<std::uint64_t>(kNoFile);
  UniqueFd fd(static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, getpid(), -1, -1, PERF_FLAG_FD_CLOEXEC)));
  if (fd || errno == ENOENT) return 0;
  return errno;
}

Check uprobe_check(const OwnRights& rights) {
  const bool links = has_uprobe_links();
  const Trial trial = {
      .name = "uprobes",
      .works =
          links ? "uprobes can be set, by links: exact phases, compiled regions, GPU launches"
                : "uprobes can be set, by perf events, each of which takes a tenth of a second to "
                  "remove: exact phases, compiled regions, GPU launches",
      .fails = "the kernel refuses uprobes",
      .failed = CheckState::kDegraded,
      .consequence =
          "begin and end of phases and compiled regions come from samples; no GPU launches",
      .fix = "run it with sudo; in a container: --cap-add SYS_ADMIN"};
  if (links) return judge_trial(trial, 0, rights.load_programs);
  std::uint32_t type = 0;
  if (!(std::ifstream("/sys/bus/event_source/devices/uprobe/type") >> type))
    return {trial.name, CheckState::kDegraded,
            "/sys/bus/event_source/devices/uprobe/type cannot be read", trial.consequence,
            "boot a kernel built with CONFIG_UPROBE_EVENTS=y; in a container: mount /sys"};
  return judge_trial(trial, try_uprobe(type), rights.load_programs);
}

}  // namespace

std::vector<Check> perf_checks(const OwnRights& rights) {
  std::vector<Check> checks = {cpu_clock_check(rights), cycles_check(rights),
                               watchpoint_check(rights), uprobe_check(rights)};
  if (rights.admin && perf_events_need_admin())
    checks.push_back({"perf-admin", CheckState::kOk,
                      "this kernel requires CAP_SYS_ADMIN for each perf event",
                      "it is kept to the end of a recording with watchpoints", ""});
  return checks;
}

}  // namespace dynprof
