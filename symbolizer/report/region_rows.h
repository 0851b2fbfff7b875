// Rows of the table of compiled regions: what was counted, with what samples show of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

// CPU time in a region's own frames, from samples.
struct RegionSamples {
  std::uint64_t graph_ns = 0;     // in a compiled graph
  std::uint64_t bytecode_ns = 0;  // in the bytecode that Dynamo wrote, and what it calls itself
  std::uint64_t wrapper_ns = 0;   // in torch's Python code between that and the graph
  std::uint64_t other_ns = 0;     // in code of the user's that the region calls
  std::uint64_t samples = 0;      // of all of these
  std::uint64_t outside_ns() const { return bytecode_ns + wrapper_ns; }
  std::uint64_t all_ns() const { return graph_ns + outside_ns() + other_ns; }
};

struct RegionRow {
  const RegionStats* stats = nullptr;
  bool timed = true;     // false: lengths and searches of its process were not measured to the end
  bool complete = true;  // every run was counted; else there were at least `stats->calls`
  std::string_view function{};  // "" where it is not known
  std::string_view file{};
  std::int32_t line = 0;
  // Of the time of its process in which a run was open, without regions inside it; nullopt: runs were not
  // counted all the time.
  std::optional<double> share{};
  RegionSamples samples{};
  // From samples, nullopt where there are none or (outside) too few: of all CPU time that was sampled; of the
  // region's, what is outside of its graph.
  std::optional<double> cpu_share{}, outside{};

  std::string id() const;  // "0/1", "bw 0/1", "bw -": not known
};

// Most time first. The analysis must outlive them.
std::vector<RegionRow> region_rows(const Analysis& analysis);

}  // namespace dynprof
