#include "symbolizer/attribution/gpu_summary.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "symbolizer/attribution/gpu_streams.h"

namespace dynprof {
namespace {

bool starts_work(const GpuCall& call) {
  return call.call_class != 0 && call.call_class != DYNPROF_GPU_CLASS_SYNC;
}

// What one run of a region did on one device.
struct DeviceRun {
  std::uint64_t begin_ns = 0, end_ns = 0;  // of its first work, of its last
  GpuStreams streams;
};

// One run of a region.
struct Run {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint64_t last_call_end = 0;
  std::map<std::uint32_t, DeviceRun> devices;
};

class Regions {
 public:
  Regions(const GpuWork& gpu, const std::vector<GpuLoad>& loads) : gpu_(gpu), loads_(loads) {}

  std::vector<GpuRegionRow> add_up() {
    // By begin, so the calls of a run come in order.
    for (const GpuCall& call : gpu_.calls()) add(call);
    for (const GpuItem& item : gpu_.items()) add(item);
    for (const GpuGraphRecord& graph : gpu_.graph_records()) add(graph);
    std::map<std::pair<std::int32_t, std::uint32_t>, const GpuLoad*> load_of;
    for (const GpuLoad& load : loads_) load_of[{load.pid, load.device}] = &load;
    for (const auto& [key, run] : runs_) {
      GpuRegionRow& row = rows_[region_of_[key]];
      ++row.runs;
      for (const auto& [device, one] : run.devices) {
        const GpuTimes times = load_of.at({row.pid, device})->idle_in(one.begin_ns, one.end_ns);
        row.idle_ns += times.idle_ns;
        row.late_ns += times.late_ns;
        const GpuStreams::Times streams = one.streams.times();
        row.busy_ns += streams.busy_ns;
        row.overlap_ns += streams.overlap_ns;
        for (const auto& [number, stream] : one.streams.streams())
          row.streams[{device, number}] += stream.busy_ns;
        row.windows[device].emplace_back(run.begin_ns, std::max(run.end_ns, one.end_ns));
      }
    }
    std::vector<GpuRegionRow> sorted;
    for (auto& [key, row] : rows_) {
      for (auto& [device, times] : row.windows) join_intervals(times);
      sorted.push_back(std::move(row));
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.work_ns > b.work_ns; });
    return sorted;
  }

 private:
  using RunKey = std::pair<ThreadId, std::uint32_t>;
  using RegionKey = std::tuple<std::int32_t, TraceId, bool>;

  void add(const GpuCall& call) {
    if (call.run == kNoIndex || call.compiling || !is_valid(call.id) || !starts_work(call)) return;
    const RegionKey region(call.pid, call.id, call.backward);
    GpuRegionRow& row = rows_[region];
    row.pid = call.pid;
    row.id = call.id;
    row.backward = call.backward;
    const RunKey key(call.thread, call.run);
    region_of_[key] = region;
    Run& run = runs_[key];
    run.begin_ns = call.run_begin_ns;
    run.end_ns = call.run_end_ns;
    ++row.launches;
    row.graph_launches += call.call_class == DYNPROF_GPU_CLASS_GRAPH;
    if (run.last_call_end != 0 && call.begin_ns > run.last_call_end)
      row.gap_ns += call.begin_ns - run.last_call_end;
    if (call.end_ns > call.begin_ns) row.launch_ns += call.end_ns - call.begin_ns;
    run.last_call_end = std::max(call.begin_ns, call.end_ns);
  }

  // It launches what it records: there is a row.
  void add(const GpuGraphRecord& graph) {
    const auto row = rows_.find({graph.pid, graph.id, graph.backward});
    if (row == rows_.end()) return;
    ++row->second.graphs_recorded;
    row->second.graph_record_ns += graph.ns;
  }

  void add(const GpuItem& item) {
    if (item.call == kNoIndex || !is_gpu_work(item.row->record)) return;
    const GpuCall& call = gpu_.calls()[item.call];
    auto run = runs_.find({call.thread, call.run});
    if (run == runs_.end()) return;
    const dynprof_gpu_record& record = item.row->record;
    GpuRegionRow& row = rows_[region_of_[run->first]];
    ++row.works;
    row.work_ns += record.end_ns - record.start_ns;
    if (record.kind != DYNPROF_GPU_KERNEL) {
      GpuMemoryWork& memory = record.kind == DYNPROF_GPU_MEMCPY ? row.copies : row.memsets;
      ++memory.count;
      memory.bytes += record.memory.bytes;
      memory.ns += record.end_ns - record.start_ns;
    }
    auto [device, added] = run->second.devices.try_emplace(record.device);
    DeviceRun& one = device->second;
    if (added) one.begin_ns = record.start_ns;
    one.end_ns = std::max<std::uint64_t>(one.end_ns, record.end_ns);
    one.streams.add(record.stream, record.start_ns, record.end_ns);
  }

  const GpuWork& gpu_;
  const std::vector<GpuLoad>& loads_;
  std::map<RegionKey, GpuRegionRow> rows_;
  std::map<RunKey, Run> runs_;
  std::map<RunKey, RegionKey> region_of_;
};

}  // namespace

namespace {

std::vector<GpuBareRow> bare_rows(const GpuWork& gpu) {
  std::map<std::tuple<std::string_view, std::string_view, std::uint32_t, TraceId, bool>, GpuBareRow>
      rows;
  for (const GpuCall& call : gpu.calls()) {
    if (!call.bare) continue;
    GpuBareRow& row = rows[{call.kernel, call.caller, call.call, call.id, call.backward}];
    row.kernel = call.kernel;
    row.caller = call.caller;
    row.call = call.call;
    row.id = call.id;
    row.backward = call.backward;
    if (row.stack == 0) row.stack = call.stack;
    ++row.calls;
  }
  std::vector<GpuBareRow> sorted;
  for (const auto& [key, row] : rows) sorted.push_back(row);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.calls > b.calls; });
  return sorted;
}

}  // namespace

GpuSummary summarize(const GpuWork& gpu) {
  GpuSummary summary;
  for (const GpuCall& call : gpu.calls()) {
    ++(call.bare ? summary.bare_calls : summary.calls);
    summary.calls_without_stack += !call.announced;
    summary.graph_launches += call.call_class == DYNPROF_GPU_CLASS_GRAPH;
    if (!starts_work(call) || call.end_ns <= call.begin_ns) continue;
    ++summary.launches;
    summary.launch_ns += call.end_ns - call.begin_ns;
  }
  using Key = std::tuple<std::uint32_t, StringId, std::uint32_t, TraceId, bool>;
  std::map<Key, GpuKernelRow> rows;
  for (const GpuItem& item : gpu.items()) {
    const dynprof_gpu_record& record = item.row->record;
    if (!is_gpu_work(record)) continue;
    static const GpuCall kUnknown;
    const GpuCall& call = item.call == kNoIndex ? kUnknown : gpu.calls()[item.call];
    const bool kernel = record.kind == DYNPROF_GPU_KERNEL;
    const std::uint32_t copy = record.kind == DYNPROF_GPU_MEMCPY ? record.memory.copy_kind : 0;
    const StringId name = kernel ? record.name : 0;
    GpuKernelRow& row = rows[{record.kind, name, copy, call.id, call.backward}];
    const std::uint64_t length = record.end_ns - record.start_ns;
    if (row.stack == 0) row.stack = call.stack;
    if (row.calls == 0 || length > row.longest_ns) {
      row.longest_ns = length;
      if (call.stack != 0) row.stack = call.stack;
    }
    row.kind = record.kind;
    row.name = name;
    row.copy_kind = copy;
    row.id = call.id;
    row.backward = call.backward;
    ++row.calls;
    row.total_ns += length;
    ++summary.works;
    summary.work_ns += length;
  }
  for (const auto& [key, row] : rows) summary.kernels.push_back(row);
  std::stable_sort(
      summary.kernels.begin(), summary.kernels.end(),
      [](const GpuKernelRow& a, const GpuKernelRow& b) { return a.total_ns > b.total_ns; });
  summary.bare = bare_rows(gpu);
  summary.loads = gpu_loads(gpu);
  summary.regions = Regions(gpu, summary.loads).add_up();
  return summary;
}

}  // namespace dynprof
