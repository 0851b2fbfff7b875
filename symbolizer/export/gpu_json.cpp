#include "symbolizer/export/gpu_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/attribution/gpu_summary.h"
#include "symbolizer/base/text.h"
#include "symbolizer/report/gpu_verdict.h"
#include "symbolizer/symbols/gpu_kernel_name.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxLines = 10;    // of user code, of a region
constexpr std::size_t kMaxStreams = 64;  // of a region; PyTorch has pools of 32 a device

Json seconds(std::uint64_t ns) { return std::round(static_cast<double>(ns)) / 1e9; }

Json memory_json(const GpuMemoryWork& memory) {
  return {{"count", memory.count}, {"bytes", memory.bytes}, {"total_s", seconds(memory.ns)}};
}

// Most time first.
Json streams_json(const GpuRegionRow& row) {
  std::vector<std::pair<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t>> sorted(
      row.streams.begin(), row.streams.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (sorted.size() > kMaxStreams) sorted.resize(kMaxStreams);
  Json streams = Json::array();
  for (const auto& [key, ns] : sorted)
    streams.push_back({{"device", key.first}, {"id", key.second}, {"busy_s", seconds(ns)}});
  return streams;
}

Json bound_json(GpuBound bound) {
  switch (bound) {
    case GpuBound::kGpu:
      return "gpu";
    case GpuBound::kCpu:
      return "cpu";
    case GpuBound::kOther:
      return "other";
    case GpuBound::kUnknown:
      break;
  }
  return nullptr;
}

Json verdict_json(const GpuVerdict& verdict) {
  if (verdict.devices == 0) return nullptr;
  Json lines = Json::array();
  for (const auto& [line, ns] : verdict.meanwhile) {
    if (lines.size() == kMaxLines) break;
    lines.push_back({{"line", valid_utf8(line)}, {"total_s", seconds(ns)}});
  }
  return {
      {"bound", bound_json(gpu_bound(verdict))},      {"busy_s", seconds(verdict.times.busy_ns)},
      {"idle_s", seconds(verdict.times.idle_ns)},     {"late_s", seconds(verdict.times.late_ns)},
      {"meanwhile_s", seconds(verdict.meanwhile_ns)}, {"meanwhile", std::move(lines)}};
}

Json text_or_null(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(valid_utf8(text));
}

Json name_json(std::string_view kernel) { return valid_utf8(gpu_kernel_name(kernel)); }

// As nvidia-smi -L shows it.
Json uuid_json(const std::optional<GpuUuid>& uuid) {
  if (!uuid) return nullptr;
  std::string text = "GPU";
  const auto bytes = std::as_bytes(std::span(*uuid));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", std::to_integer<unsigned>(bytes[i]));
  }
  return text;
}

}  // namespace

Json gpu_json(const Analysis& analysis, const std::vector<std::string>& user_packages) {
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
                       {"uuid", uuid_json(gpu.device_uuid(key.first, key.second))},
                       {"busy_s", seconds(times.busy_ns)},
                       {"idle_s", seconds(times.idle_ns)},
                       {"late_s", seconds(times.late_ns)}});
  }
  Json kernels = Json::array();
  for (const GpuKernelRow& row : summary.kernels) {
    if (row.kind != DYNPROF_GPU_KERNEL) continue;
    const Tables& tables = analysis.tables();
    kernels.push_back({{"name", name_json(tables.strings[row.name])},
                       {"trace_id", is_valid(row.id) ? Json(row.id.text()) : Json(nullptr)},
                       {"backward", row.backward},
                       {"count", row.calls},
                       {"total_s", seconds(row.total_ns)}});
  }
  Json bare = Json::array();
  for (const GpuBareRow& row : summary.bare)
    bare.push_back({{"call", gpu_call_name(row.call)},
                    {"kernel", row.kernel.empty() ? Json(nullptr) : name_json(row.kernel)},
                    {"caller", text_or_null(row.caller)},
                    {"trace_id", is_valid(row.id) ? Json(row.id.text()) : Json(nullptr)},
                    {"backward", row.backward},
                    {"count", row.calls}});
  Json regions = Json::array();
  ReportOptions options;
  options.user_packages = user_packages;
  std::vector<GpuVerdict> verdicts = gpu_region_verdicts({analysis, options, {}, {}}, summary);
  verdicts.resize(summary.regions.size());
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const GpuRegionRow& row = summary.regions[i];
    regions.push_back({{"process", row.pid},
                       {"trace_id", row.id.text()},
                       {"backward", row.backward},
                       {"runs", row.runs},
                       {"launches", row.launches},
                       {"graph_launches", row.graph_launches},
                       {"graphs_recorded", row.graphs_recorded},
                       {"graph_record_s", seconds(row.graph_record_ns)},
                       {"launch_s", seconds(row.launch_ns)},
                       {"gap_s", seconds(row.gap_ns)},
                       {"work", row.works},
                       {"work_s", seconds(row.work_ns)},
                       {"idle_s", seconds(row.idle_ns)},
                       {"late_s", seconds(row.late_ns)},
                       {"copies", memory_json(row.copies)},
                       {"memsets", memory_json(row.memsets)},
                       {"busy_s", seconds(row.busy_ns)},
                       {"overlap_s", seconds(row.overlap_ns)},
                       {"streams", streams_json(row)},
                       {"verdict", verdict_json(verdicts[i])}});
  }
  return {{"calls", summary.calls},
          {"calls_without_library", summary.bare_calls},
          {"calls_without_stack", summary.calls_without_stack},
          {"work", summary.works},
          {"work_without_call", gpu.orphans()},
          {"work_s", seconds(summary.work_ns)},
          {"devices", std::move(devices)},
          {"kernels", std::move(kernels)},
          {"without_library", std::move(bare)},
          {"regions", std::move(regions)}};
}

}  // namespace dynprof
