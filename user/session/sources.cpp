#include "user/session/sources.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

#include "user/session/ring_size.h"

namespace dynprof {
namespace {

// Unwind tables are made in about a second the first time, and read from disk later.
constexpr std::chrono::milliseconds kTablesWait{1500};

}  // namespace

Result<Sources> Sources::load(const SessionOptions& options, Notes& notes) {
  Sources sources;
  const KernelSideOptions kernel_options = {.ring_bytes = ring_bytes(options.frequency_hz),
                                            .watchpoints = options.watchpoints && !options.passive,
                                            .probes = !options.passive,
                                            .command_lines = options.command_lines,
                                            .direct_map = options.direct_map,
                                            .count_all_runs = options.count_all_runs};
  ASSIGN_OR_RETURN(sources.kernel, KernelSide::load(kernel_options));
  GpuOptions gpu = options.gpu;
  if (options.passive) gpu.mode = GpuMode::kOff;
  sources.gpu = std::make_unique<GpuCollector>(
      gpu, options.targets, *sources.kernel,
      [&notes](const std::string& sentence) { notes.add(sentence); });
  ASSIGN_OR_RETURN(sources.events, open_sampling_events(options.event, options.frequency_hz));
  sources.sampling = CpuSampling::of(*sources.kernel, options.event, options.frequency_hz);
  if (options.off_cpu) {
    // Without it the recording is of time on the CPU alone.
    auto loaded = OffCpu::load(*sources.kernel, options.off_cpu_threshold_ns);
    if (loaded)
      sources.off_cpu = std::move(*loaded);
    else
      notes.add(fmt::format("waits are not recorded: {}", loaded.error().what));
  }
  if (options.native) sources.native = NativeSpaces::start(*sources.kernel, options.native_limits);
  return sources;
}

void Sources::prepare_native(ProcessTable& processes) {
  if (!native) return;
  for (auto& [pid, process] : processes.all()) native->give(process);
  native->settle(kTablesWait);
}

void Sources::attach_off_cpu(const ProcessTable& processes, Notes& notes) {
  if (!off_cpu) return;
  for (const auto& [pid, process] : processes.all()) off_cpu->add_threads(pid);
  if (auto attached = off_cpu->attach(); !attached) {
    notes.add(fmt::format("waits are not recorded: {}", attached.error().what));
    off_cpu.reset();
  }
}

void Sources::detach() {
  if (off_cpu) off_cpu->detach();
  sampling.detach();
  kernel->detach();
}

}  // namespace dynprof
