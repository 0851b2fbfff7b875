#include "symbolizer/export/gpu_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "symbolizer/attribution/gpu_summary.h"
#include "symbolizer/base/text.h"
#include "symbolizer/symbols/gpu_kernel_name.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

Json seconds(std::uint64_t ns) { return std::round(static_cast<double>(ns)) / 1e9; }

}  // namespace

Json gpu_json(const Analysis& analysis) {
  const GpuWork& gpu = analysis.gpu();
  if (gpu.empty()) return nullptr;
  const GpuSummary summary = summarize(gpu);
  Json devices = Json::array();
  for (const auto& [key, row] : gpu.devices()) {
    GpuTimes times;
    for (const GpuLoad& load : summary.loads)
      if (load.pid == key.first && load.device == key.second) times += load.times;
    devices.push_back({{"process", key.first},
                       {"id", key.second},
                       {"name", valid_utf8(gpu.device_name(key.first, key.second))},
                       {"busy_s", seconds(times.busy_ns)},
                       {"idle_s", seconds(times.idle_ns)},
                       {"late_s", seconds(times.late_ns)}});
  }
  Json kernels = Json::array();
  for (const GpuKernelRow& row : summary.kernels) {
    if (row.kind != DYNPROF_GPU_KERNEL) continue;
    const Tables& tables = analysis.tables();
    kernels.push_back({{"name", valid_utf8(gpu_kernel_name(tables.strings[row.name]))},
                       {"trace_id", is_valid(row.id) ? Json(row.id.text()) : Json(nullptr)},
                       {"backward", row.backward},
                       {"count", row.calls},
                       {"total_s", seconds(row.total_ns)}});
  }
  Json regions = Json::array();
  for (const GpuRegionRow& row : summary.regions)
    regions.push_back({{"process", row.pid},
                       {"trace_id", row.id.text()},
                       {"backward", row.backward},
                       {"runs", row.runs},
                       {"launches", row.launches},
                       {"launch_s", seconds(row.launch_ns)},
                       {"gap_s", seconds(row.gap_ns)},
                       {"work", row.works},
                       {"work_s", seconds(row.work_ns)},
                       {"idle_s", seconds(row.idle_ns)},
                       {"late_s", seconds(row.late_ns)}});
  return {{"calls", summary.calls},
          {"calls_without_library", summary.bare_calls},
          {"work", summary.works},
          {"work_without_call", gpu.orphans()},
          {"work_s", seconds(summary.work_ns)},
          {"devices", std::move(devices)},
          {"kernels", std::move(kernels)},
          {"regions", std::move(regions)}};
}

}  // namespace dynprof
