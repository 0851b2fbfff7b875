#include "symbolizer/attribution/gpu_load.h"

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
  for_each_gap_in(begin_ns, end_ns,
                  [&](const GpuGap& gap, std::uint64_t from_ns, std::uint64_t to_ns) {
                    found.idle_ns += to_ns - from_ns;
                    if (gap.late()) found.late_ns += to_ns - from_ns;
                  });
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
      load.first_ns = load.last_ns = growing.until_ns = record.start_ns;
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
    load.last_ns = growing.until_ns = record.end_ns;
  }
  std::vector<GpuLoad> loads;
  for (auto& [key, growing] : found) loads.push_back(std::move(growing.load));
  return loads;
}

}  // namespace dynprof
