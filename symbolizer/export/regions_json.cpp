#include "symbolizer/export/regions_json.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "symbolizer/base/text.h"
#include "symbolizer/report/region_rows.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxRegions = 1000;

// To the nanosecond: a run may last some microseconds.
Json seconds(double ns) { return std::round(ns) / 1e9; }
Json seconds(std::uint64_t ns) { return seconds(static_cast<double>(ns)); }

Json mean(double ns, std::uint64_t count) { return count == 0 ? Json(nullptr) : seconds(ns); }

Json text_or_null(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(valid_utf8(text));
}

Json part_or_null(std::optional<double> part) {
  return part ? Json(std::round(*part * 1e6) / 1e6) : Json(nullptr);
}

Json region_json(const RegionRow& row) {
  const RegionStats& stats = *row.stats;
  const RegionSamples& samples = row.samples;
  return {{"process", stats.pid},
          {"trace_id", is_valid(stats.id) ? Json(stats.id.text()) : Json(nullptr)},
          {"backward", stats.backward},
          {"function", text_or_null(row.function)},
          {"file", text_or_null(row.file)},
          {"line", row.line > 0 ? Json(row.line) : Json(nullptr)},
          {"calls", stats.calls},
          {"complete", row.complete},
          {"calls_per_s", std::round(stats.calls_per_second() * 1e3) / 1e3},
          {"counted_s", seconds(stats.counted_ns)},
          {"share", part_or_null(row.share)},
          {"timed", stats.timed},
          {"run_s", mean(stats.time_per_run(), stats.timed)},
          {"self_s", mean(stats.self_per_run(), stats.timed)},
          {"searches", stats.lookups},
          {"search_s", mean(stats.lookup_per_run(), stats.lookups)},
          {"cpu_share", part_or_null(row.cpu_share)},
          {"samples",
           {{"count", samples.samples},
            {"graph_s", seconds(samples.graph_ns)},
            {"bytecode_s", seconds(samples.bytecode_ns)},
            {"wrapper_s", seconds(samples.wrapper_ns)},
            {"other_s", seconds(samples.other_ns)}}}};
}

}  // namespace

Json regions_json(const Analysis& analysis) {
  const RegionRunStats& stats = analysis.regions();
  if (stats.processes().empty()) return nullptr;
  Json processes = Json::array();
  for (const RegionProcess& process : stats.processes())
    processes.push_back({{"process", process.pid},
                         {"counted_s", seconds(process.end_ns - process.begin_ns)},
                         {"timed_s", seconds(process.timed_end_ns - process.begin_ns)},
                         {"complete", process.complete}});
  Json regions = Json::array();
  const std::vector<RegionRow> rows = region_rows(analysis);
  for (const RegionRow& row : rows) {
    if (regions.size() == kMaxRegions) break;
    regions.push_back(region_json(row));
  }
  return {{"processes", std::move(processes)},
          {"regions", std::move(regions)},
          {"left_out", rows.size() - std::min(rows.size(), kMaxRegions)}};
}

}  // namespace dynprof
