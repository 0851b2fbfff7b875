// What is recorded, and how.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "user/gpu/gpu_options.h"
#include "user/kernel/perf_event.h"
#include "user/stacks/native_unwind.h"

namespace dynprof {

struct SessionOptions {
  std::vector<pid_t> targets;  // none with `all`
  bool all = false;            // every process there is or will be
  std::uint32_t frequency_hz = kDefaultFrequencyHz;
  std::uint64_t duration_ns = 0;  // 0: until interrupted or the target ends
  std::uint64_t max_bytes = 0;    // of the recording, 0: no limit
  SamplingEvent event = SamplingEvent::kCpuClock;
  bool children = true;
  bool passive = false;     // nothing in a target is changed: no probes, no watchpoints, no library
  bool watchpoints = true;  // hardware ones, where the CPU and the kernel provide them
  bool record_functions = false;  // exact ranges of record_function, see AnnotationProbes
  bool direct_map = true;         // see KernelSideOptions
  bool count_all_runs = false;    // the same
  bool all_user_lines = false;    // see LineWatch
  bool native = true;             // native and kernel frames too
  bool off_cpu = true;            // what threads wait for, and how long
  std::uint64_t off_cpu_threshold_ns = 1'000'000;
  bool command_lines = true;  // keep them: of the target, and of all programs it starts
  std::vector<std::string> user_packages;  // installed, and the user's own code all the same
  NativeLimits native_limits;
  GpuOptions gpu;
  bool launched = false;  // the target is a command of ours that has not begun yet
  std::vector<std::string>
      command;  // that command: until its exec the target has our own arguments
};

}  // namespace dynprof
