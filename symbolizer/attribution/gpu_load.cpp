#include "symbolizer/attribution/gpu_load.h"

#include <algorithm>
#include <map>
#include <utility>

namespace dynprof {

GpuTimes& GpuTimes::operator+=(const GpuTimes& more) {
  busy_ns += more.busy_ns;
  idle_ns += more.idle_ns;
  late_ns += more.late_ns;
  return *this;
}

GpuTimes GpuLoad::idle_in(std::uint64_t begin_ns, std::uint64_t end_ns) const {
  GpuTimes found;
  if (end_ns <= begin_ns) return found;  // in a recording that is wrong
  auto gap = std::partition_point(gaps.begin(), gaps.end(),
                                  [&](const GpuGap& one) { return one.end_ns <= begin_ns; });
  for (; gap != gaps.end() && gap->begin_ns < end_ns; ++gap) {
    const std::uint64_t ns = std::min(gap->end_ns, end_ns) - std::max(gap->begin_ns, begin_ns);
    found.idle_ns += ns;
    if (gap->late()) found.late_ns += ns;
  }
  return found;
}

std::vector<GpuLoad> gpu_loads(const GpuWork& gpu) {
  struct Growing {
    GpuLoad load;
    std::uint64_t until_ns = 0;
  };
  std::map<std::pair<std::int32_t, std::uint32_t>, Growing> found;
  for (const GpuItem& item : gpu.items()) {  // by begin
    const dynprof_gpu_record& record = item.row->record;
    if (!is_gpu_work(record)) continue;
    Growing& growing = found[{item.row->pid, record.device}];
    GpuLoad& load = growing.load;
    if (growing.until_ns == 0) {
      load.pid = item.row->pid;
      load.device = record.device;
      growing.until_ns = record.start_ns;
    }
    if (record.start_ns > growing.until_ns) {
      GpuGap gap{.begin_ns = growing.until_ns, .end_ns = record.start_ns};
      if (item.call != kNoIndex) {
        gap.launched_ns = gpu.calls()[item.call].begin_ns;
        gap.thread = gpu.calls()[item.call].thread;
      }
      load.times.idle_ns += gap.end_ns - gap.begin_ns;
      if (gap.late()) load.times.late_ns += gap.end_ns - gap.begin_ns;
      load.gaps.push_back(gap);
      growing.until_ns = record.start_ns;
    }
    if (record.end_ns <= growing.until_ns) continue;
    load.times.busy_ns += record.end_ns - growing.until_ns;
    growing.until_ns = record.end_ns;
  }
  std::vector<GpuLoad> loads;
  for (auto& [key, growing] : found) loads.push_back(std::move(growing.load));
  return loads;
}

}  // namespace dynprof
