// What GPU work adds up to: per kernel, per compiled region.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "symbolizer/attribution/gpu_load.h"
#include "symbolizer/attribution/gpu_work.h"
#include "symbolizer/base/intervals.h"

namespace dynprof {

// All runs of one kernel (or kind of copy) that were launched for one trace id from one place.
struct GpuKernelRow {
  std::uint32_t kind = 0;       // enum dynprof_gpu_kind
  StringId name = 0;            // of a kernel
  std::uint32_t copy_kind = 0;  // of a copy
  TraceId id;                   // not valid: not from compiled code
  bool backward = false;
  StackId stack = 0;  // of its longest
  std::uint64_t calls = 0;
  std::uint64_t total_ns = 0;
  std::uint64_t longest_ns = 0;
};

// Calls that were seen without the library and launch the same for one trace id.
struct GpuBareRow {
  std::string_view kernel;  // "": not known
  std::string_view caller;  // as GpuCall's
  std::uint32_t call = 0;   // DYNPROF_GPU_CALL
  TraceId id;
  bool backward = false;
  StackId stack = 0;  // of the first that has one
  std::uint64_t calls = 0;
};

// Copies, or memsets.
struct GpuMemoryWork {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ns = 0;
};

// A compiled region (or its backward), over all of its runs that were seen.
struct GpuRegionRow {
  std::int32_t pid = 0;
  TraceId id;
  bool backward = false;
  std::uint64_t runs = 0;
  std::uint64_t launches = 0;   // calls that start work
  std::uint64_t launch_ns = 0;  // in those: launch overhead
  std::uint64_t gap_ns = 0;     // of its thread, between one such call and the next of the same run
  std::uint64_t works = 0;      // what they ran
  std::uint64_t work_ns = 0;
  // From its first work to its last, of each run: its device did nothing; and of that, before work that had not been
  // launched.
  std::uint64_t idle_ns = 0;
  std::uint64_t late_ns = 0;
  GpuMemoryWork copies, memsets;     // of its works
  std::uint64_t graph_launches = 0;  // of its launches: of a whole CUDA graph
  // CUDA graphs that torch recorded in its runs.
  std::uint64_t graphs_recorded = 0;
  std::uint64_t graph_record_ns = 0;
  // Of each run on each device: it had work running, and that on two streams or more.
  std::uint64_t busy_ns = 0;
  std::uint64_t overlap_ns = 0;
  // By (device, stream): the stream had work of it running.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> streams;
  // By device, when a run that used it was under way: from its begin to its end or that of its last work, whichever is
  // later. In order and apart from each other.
  std::map<std::uint32_t, std::vector<Interval>> windows;
};

struct GpuSummary {
  std::vector<GpuKernelRow> kernels;  // by total
  std::vector<GpuBareRow> bare;       // by calls
  std::vector<GpuRegionRow> regions;  // by time of their work
  std::vector<GpuLoad> loads;
  std::uint64_t calls = 0, bare_calls = 0, works = 0, work_ns = 0, graph_launches = 0;
  std::uint64_t calls_without_stack = 0;      // of `calls`: it was not wanted, or is lost
  std::uint64_t launch_ns = 0, launches = 0;  // of calls whose end is known
};

GpuSummary summarize(const GpuWork& gpu);

}  // namespace dynprof
