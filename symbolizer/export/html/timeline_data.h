// Compiles, their phases, ranges that the program marks and child processes over time, for the page: one row per thread
// that compiled, one per thread that marks ranges, one per process that started others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/base/json_writer.h"
#include "symbolizer/profile/analysis.h"

namespace dynprof {

struct TimelineSlice {
  std::uint64_t begin_ns = 0, end_ns = 0;  // since the recording began
  std::uint32_t depth = 0;
  std::uint32_t name = 0;  // of TimelineData::names
  enum class Kind : std::uint8_t { kCompile, kPhase, kProcess, kAnnotation } kind = Kind::kCompile;
  Phase phase = Phase::kRuntime;
  CompileIndex compile = kNoCompile;
  bool exact = true;
};

struct TimelineRow {
  std::string name;
  std::uint32_t depth = 0;  // slices above each other, at most
  std::vector<TimelineSlice> slices{};
};

inline constexpr std::size_t kMaxTimelineSlices = 20'000;

struct TimelineData {
  // The longest slices, if there are more than `most`.
  TimelineData(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
               std::size_t most = kMaxTimelineSlices);
  void write(JsonWriter& json) const;

  std::uint64_t length_ns = 0;
  std::vector<TimelineRow> rows;
  std::vector<std::string> names;   // not escaped
  std::vector<std::string> labels;  // of compiles, by CompileIndex
  std::size_t left_out = 0;         // slices
};

}  // namespace dynprof
