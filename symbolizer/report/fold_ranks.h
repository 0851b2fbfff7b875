// What several ranks compiled alike, for the compile table: one row instead of one for each rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

struct FoldedCompile {
  CompileIndex compile = kNoCompile;  // of the rank that took the longest
  std::vector<std::uint64_t> ranks;   // ascending; empty: of a process that is no rank
};

// `compiles` with those of several ranks as one where id, kind, attempt, function, reasons, graph breaks and failures
// are equal. A rank that took much longer than the others stays by itself. In the order of their compile.
std::vector<FoldedCompile> fold_ranks(const Attribution& attribution,
                                      const std::vector<CompileIndex>& compiles);

// "0-3,6": `ranks` ascending.
std::string rank_ranges(const std::vector<std::uint64_t>& ranks);

}  // namespace dynprof
