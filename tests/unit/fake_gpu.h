// GPU work of a recording, and runs of compiled regions, by hand.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "symbolizer/attribution/gpu_work.h"
#include "tests/unit/fake_edges.h"

namespace dynprof {

inline constexpr std::uint32_t kLaunchKernel = DYNPROF_GPU_CALL(DYNPROF_GPU_RUNTIME, 211);
inline constexpr std::uint32_t kGraphLaunch = DYNPROF_GPU_CALL(DYNPROF_GPU_RUNTIME, 311);
inline constexpr std::uint64_t kUs = 1000;

// Calls and work of one process, in microseconds from the recording's start.
class FakeGpu {
 public:
  explicit FakeGpu(FakeRecording& recording) : fake(recording) {}

  void call(ThreadId thread, std::uint32_t correlation, std::uint64_t at_us, std::uint64_t long_us,
            StackId stack = 0, std::uint32_t number = kLaunchKernel, ContextId context = 0) {
    launch(thread, correlation, at_us, stack, number, context);
    finished(thread, correlation, at_us, long_us, number);
  }
  // What the library says at the end of a call, whether or not its begin was announced.
  dynprof_gpu_record& finished(ThreadId thread, std::uint32_t correlation, std::uint64_t at_us,
                               std::uint64_t long_us, std::uint32_t number = kLaunchKernel) {
    GpuRecord& row = record(thread, DYNPROF_GPU_CALL_RECORD, correlation, at_us, long_us);
    row.record.call.call = number;
    row.record.call.call_class = gpu_call_class(number);
    row.record.thread = static_cast<std::uint32_t>(fake.tables().threads[thread].tid);
    return row.record;
  }
  void launch(ThreadId thread, std::uint32_t correlation, std::uint64_t at_us, StackId stack = 0,
              std::uint32_t number = kLaunchKernel, ContextId context = 0, std::uint8_t flags = 0) {
    fake.edit_tables().gpu_launches.push_back({.time_ns = time(at_us),
                                               .thread = thread,
                                               .correlation = correlation,
                                               .call = number,
                                               .stack = stack,
                                               .context = context,
                                               .flags = flags});
  }
  void kernel(ThreadId thread, std::uint32_t correlation, std::uint64_t at_us,
              std::uint64_t long_us, const char* name = "_Z5plainPf", std::uint32_t stream = 7) {
    GpuRecord& row = record(thread, DYNPROF_GPU_KERNEL, correlation, at_us, long_us);
    row.record.name = fake.string(name);
    row.record.stream = stream;
    for (int i = 0; i < 3; ++i) row.record.kernel.grid[i] = row.record.kernel.block[i] = 1;
  }
  // A copy, or a memset.
  void memory(ThreadId thread, std::uint32_t kind, std::uint32_t correlation, std::uint64_t at_us,
              std::uint64_t long_us, std::uint64_t bytes, std::uint32_t stream = 7) {
    GpuRecord& row = record(thread, kind, correlation, at_us, long_us);
    row.record.memory.bytes = bytes;
    row.record.stream = stream;
  }
  std::uint64_t time(std::uint64_t us) const { return fake.meta().start_ns + us * kUs; }

  FakeRecording& fake;

 private:
  GpuRecord& record(ThreadId thread, std::uint32_t kind, std::uint32_t correlation,
                    std::uint64_t at_us, std::uint64_t long_us) {
    GpuRecord row;
    row.pid = fake.tables().threads[thread].pid;
    row.record.kind = kind;
    row.record.correlation = correlation;
    row.record.start_ns = time(at_us);
    row.record.end_ns = time(at_us + long_us);
    if (kind == DYNPROF_GPU_CALL_RECORD) row.record.device = ~0u;
    return fake.edit_tables().gpu_records.emplace_back(row);
  }
};

// The recording has a copy of a file that Inductor wrote for a compile.
inline void copy_wrapper(FakeRecording& fake, const std::string& origin, const char* id,
                         const char* direction, const char* text) {
  fake.fact(100, "generated",
            nlohmann::json{{"trace_id", id},
                           {"kind", "wrapper"},
                           {"direction", direction},
                           {"name", "wrapper.py"},
                           {"origin", origin},
                           {"truncated", false}}
                .dump(),
            text);
}

// A run of a region on a thread, in microseconds.
inline void run(FakeRecording& fake, ThreadId thread, const char* name, std::uint64_t begin_us,
                std::uint64_t end_us) {
  SpanEdge edge;
  edge.thread = thread;
  edge.kind = EdgeKind::kRegionBegin;
  edge.name = fake.string(name);
  edge.time_ns = fake.meta().start_ns + begin_us * kUs;
  fake.edge(edge);
  edge.kind = EdgeKind::kRegionEnd;
  edge.name = 0;
  edge.time_ns = fake.meta().start_ns + end_us * kUs;
  fake.edge(edge);
  std::ranges::stable_sort(fake.edit_tables().edges, {}, &SpanEdge::time_ns);  // as a reader does
}

}  // namespace dynprof
