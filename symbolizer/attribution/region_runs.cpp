#include "symbolizer/attribution/region_runs.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "symbolizer/attribution/spans.h"

namespace dynprof {
namespace {

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

double RegionStats::calls_per_second() const { return 1e9 * ratio(calls, counted_ns); }
double RegionStats::time_per_run() const { return ratio(time_ns, timed); }
double RegionStats::self_per_run() const {
  return ratio(time_ns - std::min(nested_ns, time_ns), timed);
}
double RegionStats::lookup_per_run() const { return ratio(lookup_ns, lookups); }

RegionRunStats::RegionRunStats(const Tables& tables) {
  std::map<std::int32_t, RegionProcess> processes;
  std::map<std::tuple<std::int32_t, StringId, CodeId>, RegionStats> regions;
  std::map<const RegionStats*, std::uint64_t> first_seen;
  std::map<std::int32_t, std::uint64_t> not_timed;  // since then
  for (const RegionRuns& row : tables.region_runs) {
    auto [process, first] = processes.try_emplace(
        row.pid, RegionProcess{.pid = row.pid, .begin_ns = row.begin_ns, .end_ns = row.end_ns});
    process->second.end_ns = std::max(process->second.end_ns, row.end_ns);
    if (row.then == RunsThen::kNotCounted) process->second.complete = false;
    if (row.then == RunsThen::kNotTimed) not_timed.try_emplace(row.pid, row.end_ns);
    if (row.name == 0) continue;
    RegionStats& region = regions[{row.pid, row.name, row.code}];
    if (first_seen.try_emplace(&region, row.begin_ns).second) {
      const std::string_view name = tables.strings[row.name];
      region.pid = row.pid;
      region.name = row.name;
      region.code = row.code;
      region.id = region_id(name);
      region.backward = is_backward_run(name);
    }
    region.calls += row.calls;
    region.timed += row.timed;
    region.time_ns += row.time_ns;
    region.nested_ns += row.nested_ns;
    region.lookups += row.lookups;
    region.lookup_ns += row.lookup_ns;
  }
  for (auto& [pid, process] : processes) {
    const auto since = not_timed.find(pid);
    process.timed_end_ns = since == not_timed.end() ? process.end_ns : since->second;
    processes_.push_back(process);
  }
  for (auto& [key, region] : regions) {
    region.counted_ns = processes.at(region.pid).end_ns - first_seen.at(&region);
    regions_.push_back(region);
  }
}

const RegionProcess& RegionRunStats::process_of(const RegionStats& region) const {
  return *std::lower_bound(
      processes_.begin(), processes_.end(), region.pid,
      [](const RegionProcess& process, std::int32_t pid) { return process.pid < pid; });
}

}  // namespace dynprof
