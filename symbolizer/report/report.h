// The text report: what a person reads first. At most 100 columns; every name from the target is
// escaped for the terminal and cut to its column.
#pragma once

#include <string>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/profile/analysis.h"

namespace dynprof {

// Columns of the table of symbols, in the order they are printed; rows with equal columns are one.
enum class SortKey : std::uint8_t { kComm, kDso, kSymbol, kPhase, kCompile };

struct ReportOptions {
  std::vector<CompileIndex> compiles{};  // empty: every sample
  std::vector<Phase> phases{};           // empty: every phase
  std::vector<SortKey> sort{SortKey::kComm, SortKey::kDso, SortKey::kSymbol};
  double percent_limit = 0.5;  // rows of the symbol table below it are left out, and counted
  bool children = false;       // also the share of samples with the row anywhere on the stack
  bool tables = false;         // per compile: 20 rows by tottime and 20 by cumtime
  bool losses = false;         // what is lost or incomplete in full, at the end
  std::vector<std::string> user_packages{};  // installed, and user code all the same
  // Only samples inside ranges of this name that the program marked; '*' at its end: that begin so. "": all.
  std::string annotation{};
};

std::string render_report(const Analysis& analysis, const ReportOptions& options);

}  // namespace dynprof
