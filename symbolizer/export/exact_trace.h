// The exact part of a chrome trace: compiles, attempts and torch's phases with the times edges gave
// them, runs of compiled regions, and the arrows between them. What samples alone know is drawn by
// chrome.cpp.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/export/trace_file.h"

namespace dynprof {

class ExactTrace {
 public:
  // Of everything, or (not empty) of these compiles alone: then without runs.
  ExactTrace(TraceShared& shared, const std::vector<CompileIndex>& only);

  // Whether compiles on this row are drawn here. What samples say of others on it must not cut across
  // those: write_beside() draws the parts that lie outside.
  bool draws_on(std::size_t row) const { return !covered_[row].empty(); }
  void write_beside(TraceFile& file, std::size_t row, std::vector<SpanSlice> slices) const;
  void write(TraceFile& file) const;

 private:
  using Range = std::pair<std::uint64_t, std::uint64_t>;
  std::vector<Range> outside(std::size_t row, Range slice) const;

  TraceShared& shared_;
  bool whole_;
  std::vector<std::vector<CompileIndex>> compiles_;  // by row, those that edges tell of
  std::vector<std::vector<Range>> covered_;          // by row: their times, in order, apart
};

}  // namespace dynprof
