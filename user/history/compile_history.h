// What a live process has compiled so far, as torch itself remembers it: the rows of
// torch._dynamo.utils._compilation_metrics (a deque, the last 64 unless the program changed its
// limit), compilation_time_metrics (seconds by dynamo_timed name), graph_break_reasons and counters.
// Read from its memory, while it runs on; torch 2.6 to 2.14. Fields are found by name, so that what
// a version does not have is merely absent.
//
// A row is a compile with all its attempts: torch keeps no row per attempt, none for a compile inside
// another one on the same thread, none for compiled autograd's capture, and none for a backward that
// came out of a cache. _compilation_metrics outlives torch._dynamo.reset(); the other three do not.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_values.h"

namespace dynprof {

// A field of CompilationMetrics: a scalar, the items of a list or set (a set's sorted), or the pairs
// of a dict.
struct MetricValue {
  enum class Shape : std::uint8_t { kScalar, kItems, kPairs };
  Shape shape = Shape::kScalar;
  RemoteValue scalar;
  std::vector<RemoteValue> items;
  std::vector<std::pair<std::string, RemoteValue>> pairs;
};

// A *_us field that is time inside the compile.
struct HistoryPhase {
  Phase phase = Phase::kDynamo;
  const char* torch_field = "";
  double total_s = 0;  // as torch has it, with what is nested in it
  double self_s = 0;   // without the other fields that are nested in it
};

struct CacheUse {
  std::int64_t fx_hits = 0, fx_misses = 0;    // FxGraphCache, local and remote
  std::int64_t aot_hits = 0, aot_misses = 0;  // AOTAutogradCache, local and remote
  bool known = false;                         // this torch counts them
};

struct UserFrame {
  std::string file;
  std::int64_t line = 0;
  std::string function;
};

struct HistoryBreak {
  std::string reason;
  std::vector<UserFrame> stack;  // the function being compiled first, the line that broke last
  std::optional<std::size_t> compile;  // the row it belongs to, where that is sure
};

struct HistoryRow {
  std::string trace_id;  // "" when torch noted none
  CompileKind kind = CompileKind::kForward;
  // Of a backward, whose row has none: that of its frame.
  std::string function, file;
  std::optional<std::int64_t> line;
  // How many restarts are certain: the number of different restart reasons. nullopt for a failed
  // compile, of which torch drops the reasons.
  std::optional<std::int64_t> attempt;
  std::optional<std::int64_t> start_us, end_us, duration_us;  // of the epoch; the time inside
  std::optional<std::int64_t> start_ns;  // CLOCK_MONOTONIC, by today's distance of the two clocks
  std::vector<HistoryPhase> phases;
  std::vector<std::string> restart_reasons;
  std::optional<std::string> recompile_reason, fail_type, fail_reason;
  std::optional<std::string> cudagraph_skip_reason;  // where torch has it: 2.13 and 2.15 do
  std::vector<std::size_t> graph_breaks;             // of CompileHistory::graph_breaks
  CacheUse cache;
  // Of a forward that came out of AOTAutogradCache: whether its backward did as well, so that there
  // is and will be no row of it.
  std::optional<bool> backward_from_cache;
  std::vector<std::pair<std::string, MetricValue>> metrics;  // every field, in torch's order

  double wall_s() const;  // 0: not known
};

struct TimedFunction {
  std::string name;             // the key of dynamo_timed
  std::vector<double> seconds;  // one per call since torch._dynamo.reset(), the newest last
  std::size_t calls = 0;        // more than `seconds` when there were too many to read
};

struct CounterGroup {
  std::string name;
  std::vector<std::pair<std::string, std::int64_t>> counts;
};

struct CompileHistory {
  pid_t pid = 0;
  std::string torch;                // version, "" when not known
  std::string python;               // "3.11.7"
  bool dynamo_imported = false;     // false: nothing can have been compiled
  std::vector<HistoryRow> rows;     // in the order the compiles ended
  std::vector<HistoryRow> runtime;  // is_runtime: autotuning and CUDA graphs after the compile
  bool rows_dropped = false;        // the deque is full: there were more before
  std::vector<HistoryBreak> graph_breaks;
  std::vector<TimedFunction> times;
  std::vector<CounterGroup> counters;
  std::optional<std::int64_t> frames;  // FRAME_COUNTER: frames Dynamo took since reset()
  std::vector<std::string> problems;   // what could not be read, a sentence each
};

// An error only when torch is not imported; what is missing or stays torn is in `problems`. Takes
// some milliseconds and never stops the target.
Result<CompileHistory> read_compile_history(RemoteObjects& objects, const PythonRuntime& runtime);

// {"version":1, …, "compiles":[rows as in compiles.json, by begin, plus "source":"history"], …}.
// Without the raw metrics of each row it is less than half as large (measured: 199 of 472 KB for 64
// compiles that each broke their graph).
nlohmann::ordered_json to_json(const CompileHistory& history, bool with_metrics = true);

}  // namespace dynprof
