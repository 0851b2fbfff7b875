// What torch itself remembers of its compiles, from the "history" documents of a recording: one read
// at attach, one at the end. The documents come from the target by way of the recording: each field
// is checked, a row without an id is no row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/attribution/compile.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

// A graph break; `file` and `line` are where in the user's code, `stack` how that was reached, from
// the function being compiled on. "" and 0: not known.
struct PastBreak {
  struct Frame {
    std::string file, function;
    std::int32_t line = 0;
  };
  std::string reason;
  std::string file;
  std::int32_t line = 0;
  std::vector<Frame> stack{};
};

struct PastCaches {
  std::uint64_t fx_hits = 0, fx_misses = 0;
  std::uint64_t aot_hits = 0, aot_misses = 0;
};

struct PastPhase {
  std::string name;  // ours, as in compiles.json
  double wall_s = 0;
};

// One call of `_compile`, or one backward: all its attempts.
struct PastCompile {
  std::int32_t pid = 0;
  TraceId id;
  CompileKind kind = CompileKind::kForward;
  std::int32_t attempt = 0;    // the last one, as far as torch tells
  std::string function, file;  // "": not known
  std::int32_t line = 0;
  std::optional<std::uint64_t> start_ns;  // CLOCK_MONOTONIC
  std::optional<std::uint64_t> wall_ns;
  bool before_attach = false;  // was there already when we attached
  std::vector<PastBreak> graph_breaks;
  std::optional<std::string> recompile_reason;
  std::optional<std::string> failed;
  std::optional<std::string> cudagraph_skip_reason;  // why it does not run as a CUDA graph
  std::vector<std::string> restart_reasons;
  std::vector<PastPhase> phases;
  std::optional<PastCaches> caches;
  std::optional<bool> backward_from_cache;
  // Fields of CompilationMetrics that are numbers, booleans or short texts: name, JSON.
  std::vector<std::pair<std::string, std::string>> metrics;
};

struct TorchHistory {
  std::vector<PastCompile> compiles;  // each compile once, oldest first
  // Breaks that torch lists, whether or not it is known which compile they belong to; at the end.
  std::vector<PastBreak> graph_breaks;
  // Some of them belong to a compile that torch's notes do not tell: a row without breaks says nothing.
  bool breaks_without_compile = false;
  std::uint64_t unreadable = 0;  // documents and rows
};

// One that was recorded as it happened; a reason that was not readable is "".
PastBreak past_break(const Tables& tables, const GraphBreak& recorded);

TorchHistory read_history(const Tables& tables, std::int64_t realtime_offset_ns);

}  // namespace dynprof
