// Where a session's data comes from: the loaded BPF programs, and the sources that use them.
#pragma once

#include <memory>

#include "symbolizer/base/result.h"
#include "user/gpu/gpu_collector.h"
#include "user/kernel/cpu_sampling.h"
#include "user/kernel/kernel_side.h"
#include "user/kernel/perf_event.h"
#include "user/process/native_spaces.h"
#include "user/process/process_table.h"
#include "user/session/notes.h"
#include "user/session/session_options.h"
#include "user/waits/off_cpu.h"

namespace dynprof {

struct Sources {
  std::unique_ptr<KernelSide> kernel;
  std::unique_ptr<GpuCollector> gpu;
  std::unique_ptr<OffCpu> off_cpu;  // null: waits are not recorded
  std::unique_ptr<NativeSpaces>
      native;  // null: native stacks are not recorded; writes maps of `kernel`
  SamplingEvents events;
  CpuSampling sampling;

  // Loads everything that the options ask for; nothing is sampled yet. `notes` outlives the sources.
  static Result<Sources> load(const SessionOptions& options, Notes& notes);

  // The tables of what these processes map are there before the first sample, if that does not take long.
  void prepare_native(ProcessTable& processes);
  // Waits of these processes from now on.
  void attach_off_cpu(const ProcessTable& processes, Notes& notes);
  Result<void> begin_sampling() { return sampling.begin(std::move(events.cpus)); }
  // Nothing more is captured. Events that are waiting can still be read.
  void detach();
};

}  // namespace dynprof
