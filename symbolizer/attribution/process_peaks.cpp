#include "symbolizer/attribution/process_peaks.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace dynprof {
namespace {

// What is known of one process so far.
struct Peak {
  std::uint64_t before_exec = 0, bytes = 0;

  void add(const MemoryPeak& row) {
    switch (row.of) {
      case PeakOf::kBeforeExec:
        before_exec = row.bytes;
        break;
      case PeakOf::kProgram:
        bytes = row.bytes;
        break;
      case PeakOf::kProcess:
        // What it had before its exec may be its parent's memory: below that nothing is known.
        bytes = row.bytes > before_exec ? row.bytes : 0;
    }
  }
};

}  // namespace

std::vector<ProcessPeak> add_memory_peaks(const Tables& tables,
                                          std::vector<ChildProcess>& children) {
  std::unordered_map<std::int32_t, std::vector<ProcessIndex>> by_pid;  // by their begin
  for (ProcessIndex i = 0; i < children.size(); ++i) by_pid[children[i].pid].push_back(i);
  std::unordered_map<ProcessIndex, Peak> of_child;
  std::map<std::int32_t, Peak> others;
  for (const MemoryPeak& row : tables.memory_peaks) {
    const auto known = by_pid.find(row.pid);
    if (known == by_pid.end()) {
      others[row.pid].add(row);
      continue;
    }
    // The last one with that pid that had begun.
    auto after = std::upper_bound(
        known->second.begin(), known->second.end(), row.time_ns,
        [&](std::uint64_t time, ProcessIndex i) { return time < children[i].begin_ns; });
    if (after == known->second.begin()) continue;
    of_child[*--after].add(row);
  }
  for (const auto& [i, peak] : of_child) children[i].peak_bytes = peak.bytes;
  std::vector<ProcessPeak> targets;
  for (const auto& [pid, peak] : others)
    if (peak.bytes != 0) targets.push_back({pid, peak.bytes});
  return targets;
}

}  // namespace dynprof
