// How often compiled regions ran, and how long, from the counts in a recording.
#pragma once

#include <cstdint>
#include <vector>

#include "symbolizer/attribution/compile.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

// A region of a process, or its backward.
struct RegionStats {
  std::int32_t pid = 0;
  StringId name = 0;  // "Torch-Compiled Region: 0/1", "CompiledFunctionBackward 0/1"
  CodeId code = 0;    // what it runs, 0: not known
  TraceId id;         // from its name; not valid: that has none
  bool backward = false;
  std::uint64_t calls = 0;
  std::uint64_t counted_ns = 0;  // from when it was first seen until the last count of its process
  std::uint64_t timed = 0;       // calls whose length is known
  std::uint64_t time_ns = 0;     // of those, from begin to end
  std::uint64_t nested_ns = 0;   // of that, in other regions inside them
  std::uint64_t lookups = 0;     // calls for which torch's search is timed
  std::uint64_t lookup_ns = 0;   // of these searches

  double calls_per_second() const;
  // Means in ns; 0 where none is known. `self`: without other regions inside.
  double time_per_run() const;
  double self_per_run() const;
  double lookup_per_run() const;
};

// What was counted in one process.
struct RegionProcess {
  std::int32_t pid = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;  // of counting
  std::uint64_t timed_end_ns = 0;          // of measuring their lengths and searches
  bool complete = true;  // false: from `end_ns` on runs were too frequent to be counted

  // False: from `timed_end_ns` on runs were too frequent for that.
  bool timed() const { return timed_end_ns == end_ns; }
};

class RegionRunStats {
 public:
  // `tables.region_runs` in order of time.
  explicit RegionRunStats(const Tables& tables);

  const std::vector<RegionStats>& regions() const { return regions_; }
  const std::vector<RegionProcess>& processes() const { return processes_; }
  const RegionProcess& process_of(const RegionStats& region) const;

 private:
  std::vector<RegionStats> regions_;
  std::vector<RegionProcess> processes_;  // by pid
};

}  // namespace dynprof
