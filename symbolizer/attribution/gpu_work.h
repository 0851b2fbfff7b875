// The GPU's side of a recording, joined: each record of something that ran on a GPU finds the call that
// started it by (process, correlation id), each call the stack it was made from and the compile it was
// made for. A CUDA graph is one call and many kernels.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/spans.h"

namespace dynprof {

// A call into CUDA.
struct GpuCall {
  std::int32_t pid = 0;
  ThreadId thread = kNoThread;  // kNoThread: of a thread nothing else tells of
  std::uint32_t correlation = 0;
  std::uint32_t call = 0;  // DYNPROF_GPU_CALL
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;  // 0: not known
  StackId stack = 0;
  ContextId context = 0;   // what torch said of the thread then
  bool announced = false;  // by a launch of the recording: stack and thread are from there
  bool bare = false;       // seen without the library: nothing tells what it started
  std::string_view
      kernel;  // what a bare call launched, "": not known; as the program or the driver has it
  std::string_view
      caller;  // of a bare launch without that: the file whose code made it, "": not known
  std::uint32_t call_class = 0;  // enum dynprof_gpu_call_class; 0: not known
  std::uint32_t works = 0;       // what ran for it, syncs not counted
  // What it was made for: the compile open on the thread, else the run of a compiled region around it,
  // else, or where that run has no id, the innermost generated file on the stack. Not valid: none of them.
  TraceId id;
  bool backward = false;
  bool compiling = false;        // while compiling, not by what was compiled
  std::uint32_t run = kNoIndex;  // of the thread's runs (Spans::threads()[row_of(thread)].runs)
  std::uint64_t run_begin_ns = 0, run_end_ns = 0;  // of that run
};

// Something that ran on a GPU, or a wait for it.
struct GpuItem {
  const GpuRecord* row = nullptr;
  std::uint32_t call = kNoIndex;  // index into calls(); none: its call began before the recording
};

// A CUDA graph that torch recorded in a run of a compiled region: its phase CUDAGraphNode.record (torch 2.6 to 2.15).
struct GpuGraphRecord {
  std::int32_t pid = 0;
  TraceId id;
  bool backward = false;
  std::uint64_t ns = 0;  // that it took, as far as it was seen
};

using GpuUuid = std::array<std::uint32_t, 4>;  // its bytes in memory are those of CUuuid

class GpuWork {
 public:
  explicit GpuWork(const Attribution& attribution);

  bool empty() const { return calls_.empty() && items_.empty(); }
  const std::vector<GpuCall>& calls() const { return calls_; }  // by begin
  const std::vector<GpuItem>& items() const { return items_; }  // by begin
  const std::vector<GpuGraphRecord>& graph_records() const { return graph_records_; }
  // What the library said of each device, by (pid, device).
  using Devices = std::map<std::pair<std::int32_t, std::uint32_t>, const GpuRecord*>;
  const Devices& devices() const { return devices_; }
  std::string_view device_name(std::int32_t pid, std::uint32_t device) const;
  // Of the GPU, or of its MIG instance: processes may number the same one differently.
  std::optional<GpuUuid> device_uuid(std::int32_t pid, std::uint32_t device) const;
  // Items without a call, syncs not counted.
  std::uint64_t orphans() const { return orphans_; }

 private:
  void add_calls(const Attribution& attribution);
  void add_items(const Tables& tables);
  void find_compiles(const Attribution& attribution);
  void find_graph_records(const Attribution& attribution);

  std::vector<GpuCall> calls_;
  std::vector<GpuItem> items_;
  std::vector<GpuGraphRecord> graph_records_;
  Devices devices_;
  const Tables* tables_ = nullptr;
  std::uint64_t orphans_ = 0;
};

// "cudaLaunchKernel", as Kineto has it; "" for one we do not know.
std::string_view gpu_call_name(std::uint32_t call);
std::uint32_t gpu_call_class(std::uint32_t call);

// Kernels, copies and memsets, as opposed to waits.
inline bool is_gpu_work(const dynprof_gpu_record& record) {
  return record.kind == DYNPROF_GPU_KERNEL || record.kind == DYNPROF_GPU_MEMCPY ||
         record.kind == DYNPROF_GPU_MEMSET;
}

}  // namespace dynprof
