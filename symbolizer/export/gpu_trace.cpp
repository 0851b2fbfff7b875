#include "symbolizer/export/gpu_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <unordered_map>

#include "symbolizer/export/display.h"
#include "symbolizer/export/gpu_occupancy.h"
#include "symbolizer/export/gpu_rows.h"
#include "symbolizer/export/trace_file.h"
#include "symbolizer/symbols/gpu_kernel_name.h"

namespace dynprof {
namespace {

const char* copy_kind(std::uint32_t kind) {
  static constexpr const char* kNames[] = {"Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                           "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
  return kind < std::size(kNames) ? kNames[kind] : "Unknown";
}

const char* memory_kind(std::uint32_t kind) {
  static constexpr const char* kNames[] = {"Unknown",       "Pageable",      "Pinned",
                                           "Device",        "Array",         "Managed",
                                           "Device Static", "Managed Static"};
  return kind < std::size(kNames) ? kNames[kind] : "Unknown";
}

const char* sync_kind(std::uint32_t type) {
  static constexpr const char* kNames[] = {"Unknown", "Event Sync", "Stream Wait Event",
                                           "Stream Sync", "Context Sync"};
  return type < std::size(kNames) ? kNames[type] : "Unknown";
}

// Three decimals, as a fraction that no reader rounds away.
void decimal(JsonWriter& json, const char* name, double value) {
  json.key(name);
  json.microseconds(static_cast<std::uint64_t>(std::llround(std::clamp(value, 0.0, 1e12) * 1e3)));
}

void triple(JsonWriter& json, const char* name, const std::int32_t (&sizes)[3]) {
  json.key(name);
  json.begin_array();
  for (std::int32_t size : sizes) json.number(size);
  json.end_array();
}

class GpuSlices {
 public:
  GpuSlices(TraceShared& shared, TraceFile& file)
      : shared_(shared), file_(file), json_(file.json()), rows_(shared, file) {
    for (const auto& [pid, tid] : rows_.rows()) file.show_device(pid);
  }

  void write() {
    write_calls();
    for (const GpuItem& item : shared_.gpu.items()) write_item(item);
  }

 private:
  // Calls nest in the runs of their row, and in each other.
  struct Drawn {
    std::uint64_t begin_ns, end_ns;
    std::uint32_t call;  // kNoIndex: a run, drawn already
  };

  void write_calls() {
    std::map<std::uint32_t, std::vector<Drawn>> by_row;
    const std::vector<GpuCall>& calls = shared_.gpu.calls();
    drawn_.resize(calls.size());
    for (std::uint32_t i = 0; i < calls.size(); ++i) {
      const GpuCall& call = calls[i];
      if (call.thread == kNoThread || call.begin_ns < shared_.base_ns) continue;
      // Where its end is not known it is a mark.
      const std::uint64_t end = call.end_ns > call.begin_ns ? call.end_ns : call.begin_ns + 1000;
      by_row[shared_.row_of_thread[call.thread]].push_back({call.begin_ns, end, i});
    }
    for (auto& [row, slices] : by_row) {
      for (const RegionRun& run : shared_.attribution.spans().threads()[row].runs)
        slices.push_back({std::max(run.begin_ns, shared_.base_ns), run.end_ns, kNoIndex});
      write_nested(shared_.rows[row], std::move(slices));
    }
  }

  // As exact_trace.cpp draws the runs, so that calls fit into them as drawn.
  void write_nested(const TraceRow& row, std::vector<Drawn> slices) {
    std::stable_sort(slices.begin(), slices.end(), [](const Drawn& a, const Drawn& b) {
      if (a.begin_ns != b.begin_ns) return a.begin_ns < b.begin_ns;
      // A run that begins with a call is around it.
      if ((a.call == kNoIndex) != (b.call == kNoIndex)) return a.call == kNoIndex;
      return a.end_ns > b.end_ns;
    });
    std::vector<Drawn> open;
    for (Drawn slice : slices) {
      while (!open.empty() && open.back().end_ns <= slice.begin_ns) open.pop_back();
      if (!open.empty()) {
        slice.begin_ns = std::max(slice.begin_ns, open.back().begin_ns + 1);
        slice.end_ns = std::min(slice.end_ns, open.back().end_ns);
      }
      if (slice.begin_ns >= slice.end_ns) continue;
      if (slice.call != kNoIndex) write_call(row, slice);
      open.push_back(slice);
    }
  }

  void write_call(const TraceRow& row, const Drawn& slice) {
    const GpuCall& call = shared_.gpu.calls()[slice.call];
    const bool runtime = DYNPROF_GPU_CALL_DOMAIN(call.call) == DYNPROF_GPU_RUNTIME;
    if (!file_.slice_begin(runtime ? "cuda_runtime" : "cuda_driver", row.pid, row.runs_tid(),
                           slice.begin_ns, slice.end_ns))
      return;
    drawn_[slice.call] = true;
    const std::string_view name = gpu_call_name(call.call);
    json_.field("name", name.empty() ? std::string("CUDA call") : std::string(name));
    json_.key("args");
    json_.begin_object();
    json_.field("cbid", call.call & 0xffffff);
    json_.field("correlation", call.correlation);
    if (!call.kernel.empty()) json_.field("kernel", gpu_kernel_name(call.kernel));
    if (!call.caller.empty()) json_.field("caller", std::string(call.caller));
    add_compile(call);
    add_place(call);
    if (call.end_ns == 0) json_.field("end", "not seen");
    json_.end_object();
    json_.end_object();
    if (call.works > 0)
      file_.flow('s', "ac2g", rows_.flow_id(call.pid, call.correlation), row.pid, row.runs_tid(),
                 slice.begin_ns);
  }

  void add_compile(const GpuCall& call) {
    if (!is_valid(call.id)) return;
    json_.field("trace_id", call.id.text());
    if (call.backward) json_.field("direction", "backward");
    if (call.compiling) json_.field("compiling", true);
  }

  void add_place(const GpuCall& call) {
    const Tables& tables = shared_.tables;
    if (call.stack == 0 || call.stack >= tables.stacks.size()) return;
    const ResolvedFrame& frame = shared_.attribution.frames()[tables.stacks[call.stack].frame];
    if (frame.file.empty()) return;
    json_.field("Python function", display_name(frame));
    json_.field("Python file", cap_text(frame.file) + ':' +
                                   std::to_string(frame.line > 0 ? frame.line : frame.first_line));
  }

  void write_item(const GpuItem& item) {
    const dynprof_gpu_record& record = item.row->record;
    auto place = rows_.find(*item.row);
    if (!place) return;
    const char* category = record.kind == DYNPROF_GPU_KERNEL   ? "kernel"
                           : record.kind == DYNPROF_GPU_MEMCPY ? "gpu_memcpy"
                           : record.kind == DYNPROF_GPU_MEMSET ? "gpu_memset"
                                                               : "cuda_sync";
    if (!file_.slice_begin(category, place->pid, place->tid, record.start_ns, record.end_ns))
      return;
    json_.field("name", name_of(record));
    json_.key("args");
    json_.begin_object();
    switch (record.kind) {
      case DYNPROF_GPU_KERNEL:
        kernel_args(record, *place, item.row->pid);
        break;
      case DYNPROF_GPU_SYNC:
        json_.field("cuda_sync_kind", sync_kind(record.sync.type));
        json_.field("stream", record.stream);
        json_.field("correlation", record.correlation);
        json_.field("device", place->device);
        json_.field("context", record.context);
        break;
      default:
        memory_args(record, *place);
    }
    if (item.call != kNoIndex) add_compile(shared_.gpu.calls()[item.call]);
    json_.end_object();
    json_.end_object();
    if (record.kind != DYNPROF_GPU_SYNC && item.call != kNoIndex && drawn_[item.call])
      file_.flow('f', "ac2g", rows_.flow_id(item.row->pid, record.correlation), place->pid,
                 place->tid, record.start_ns);
  }

  std::string name_of(const dynprof_gpu_record& record) {
    switch (record.kind) {
      case DYNPROF_GPU_MEMCPY:
        return std::string("Memcpy ") + copy_kind(record.memory.copy_kind) + " (" +
               memory_kind(record.memory.source_kind) + " -> " +
               memory_kind(record.memory.destination_kind) + ")";
      case DYNPROF_GPU_MEMSET:
        return std::string("Memset (") + memory_kind(record.memory.destination_kind) + ")";
      case DYNPROF_GPU_SYNC:
        return sync_kind(record.sync.type);
      default:
        return kernel_name(record.name);
    }
  }

  std::string kernel_name(StringId id) {
    auto [at, added] = names_.try_emplace(id);
    if (added) at->second = gpu_kernel_name(shared_.tables.strings[id]);
    return at->second;
  }

  void kernel_args(const dynprof_gpu_record& record, const GpuRows::Place& place,
                   std::int32_t pid) {
    const dynprof_gpu_kernel& kernel = record.kernel;
    auto known = shared_.gpu.devices().find({pid, record.device});
    const GpuOccupancy occupancy = gpu_occupancy(
        kernel, known == shared_.gpu.devices().end() ? nullptr : &known->second->record.gpu);
    json_.field("queued", kernel.queued_ns);
    json_.field("device", place.device);
    json_.field("context", record.context);
    json_.field("stream", record.stream);
    json_.field("correlation", record.correlation);
    json_.field("registers per thread", kernel.registers);
    json_.field("shared memory", std::uint64_t{kernel.static_shared} + kernel.dynamic_shared);
    decimal(json_, "blocks per SM", occupancy.blocks_per_processor);
    decimal(json_, "warps per SM", occupancy.warps_per_processor);
    triple(json_, "grid", kernel.grid);
    triple(json_, "block", kernel.block);
    json_.field("est. achieved occupancy %", occupancy.percent);
    graph_args(record);
  }

  void memory_args(const dynprof_gpu_record& record, const GpuRows::Place& place) {
    const dynprof_gpu_memory& memory = record.memory;
    if (memory.peer) {
      json_.field("fromDevice", memory.source_device);
      json_.field("inDevice", record.device);
      json_.field("toDevice", memory.destination_device);
      json_.field("fromContext", memory.source_context);
      json_.field("inContext", record.context);
      json_.field("toContext", memory.destination_context);
    }
    json_.field("device", place.device);
    json_.field("context", record.context);
    json_.field("stream", record.stream);
    json_.field("correlation", record.correlation);
    json_.field("bytes", memory.bytes);
    if (record.end_ns > record.start_ns)
      decimal(
          json_, "memory bandwidth (GB/s)",
          static_cast<double>(memory.bytes) / static_cast<double>(record.end_ns - record.start_ns));
    graph_args(record);
  }

  void graph_args(const dynprof_gpu_record& record) {
    if (record.graph == 0) return;
    json_.field("graph id", record.graph);
    json_.field("graph node id", record.graph_node);
  }

  TraceShared& shared_;
  TraceFile& file_;
  JsonWriter& json_;
  GpuRows rows_;
  std::vector<bool> drawn_;  // by call
  std::unordered_map<StringId, std::string> names_;
};

}  // namespace

void write_device_properties(JsonWriter& json, const GpuWork& gpu) {
  if (gpu.devices().empty()) return;
  json.key("deviceProperties");
  json.begin_array();
  for (const auto& [key, row] : gpu.devices()) {
    const dynprof_gpu_device& device = row->record.gpu;
    json.begin_object();
    json.field("id", key.second);
    json.field("name", gpu.device_name(key.first, key.second));
    json.field("totalGlobalMem", device.memory_bytes);
    json.field("computeMajor", device.compute_major);
    json.field("computeMinor", device.compute_minor);
    json.field("maxThreadsPerBlock", device.threads_per_block);
    json.field("maxThreadsPerMultiprocessor", device.threads_per_processor);
    json.field("regsPerBlock", device.registers_per_block);
    json.field("warpSize", device.warp_size);
    json.field("sharedMemPerBlock", device.shared_per_block);
    json.field("numSms", device.processors);
    json.field("regsPerMultiprocessor", device.registers_per_processor);
    json.field("sharedMemPerBlockOptin", device.shared_per_block_optin);
    json.field("sharedMemPerMultiprocessor", device.shared_per_processor);
    json.end_object();
  }
  json.end_array();
}

void write_gpu_slices(TraceShared& shared, TraceFile& file) {
  if (!shared.gpu.empty()) GpuSlices(shared, file).write();
}

}  // namespace dynprof
