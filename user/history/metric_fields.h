// Which *_us fields of CompilationMetrics are time inside a compile, and how they nest.
#pragma once

#include <span>

#include "user/history/compile_history.h"

namespace dynprof {

struct PhaseField {
  const char* name;
  Phase phase;
  // The fields it can lie in, the nearest first; the first of them that a row has is its parent.
  const char* inside[4];
};
std::span<const PhaseField> phase_fields();

const MetricValue* find_metric(const HistoryRow& row, std::string_view name);
std::optional<std::int64_t> int_metric(const HistoryRow& row, std::string_view name);
std::optional<std::string> text_metric(const HistoryRow& row, std::string_view name);

// The frame's number and the compile's among those of the frame: 3 and 0 of "3/0" and of "!1/3/0".
struct FrameCompile {
  std::int64_t frame = -1;
  std::int64_t compile = -1;
  auto operator<=>(const FrameCompile&) const = default;
};
std::optional<FrameCompile> frame_compile(std::string_view trace_id);

// The typed part of a row out of its metrics. `monotonic_offset_us`: CLOCK_REALTIME minus
// CLOCK_MONOTONIC.
void interpret_metrics(HistoryRow& row, std::int64_t monotonic_offset_us);
// Names backwards, and forwards that were refused, after the last compile of their frame since the
// last torch._dynamo.reset(), after which numbers begin again.
void name_by_frame(std::vector<HistoryRow>& rows);

}  // namespace dynprof
