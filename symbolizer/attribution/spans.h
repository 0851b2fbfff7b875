// Source E: from edges to spans. Each thread's begins and ends are paired; what is missing (edges
// that were lost, phases that were open when watching began or ended) is never replaced by a made-up
// time: such a span says which of its two times is only a bound.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/torch_states.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

using SpanIndex = std::uint32_t;
inline constexpr SpanIndex kNoSpan = kNoIndex;

// A phase of torch's on one thread. Spans of a thread nest: `parent` lies before its children in the
// list, and around them in time.
struct PhaseSpan {
  std::uint64_t begin_ns = 0;  // not `begin_known`: it was open by then
  std::uint64_t end_ns = 0;    // not `end_known`: it was still open then
  bool begin_known = true;
  bool end_known = true;
  bool open_at_end = false;  // its end was not seen: watching or the recording ended before
  ThreadId thread = 0;
  StringId name = 0;              // torch's; 0: its begin was lost
  Phase phase = Phase::kRuntime;  // of its name, else of the span around it
  PhaseRole role = PhaseRole::kNone;
  std::int32_t number = -1;  // role kAttempt: which
  SpanIndex parent = kNoSpan;
  SpanIndex root = kNoSpan;   // the whole compile it is part of, itself for that; none: no compile
  std::int32_t attempt = -1;  // as torch reported it at its begin
  // CPU time of the thread at its two ends; 0: not known.
  std::uint64_t begin_cpu_ns = 0, end_cpu_ns = 0;
  // Of a root, as far as an edge says so.
  TraceId id;
  std::optional<CompileKind> kind;
  CodeId user_code = 0;

  bool is_root(SpanIndex own) const { return root == own; }
};

// One run of a compiled region, or of its backward.
struct RegionRun {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  bool end_known = false;  // else it was still running at `end_ns`; the same below
  ThreadId thread = 0;
  StringId name = 0;
  TraceId id;  // from its name; not valid: that has none
  bool backward = false;
};

// Dynamo tracing a user function inside another.
struct InlineCall {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  bool end_known = false;
  ThreadId thread = 0;
  CodeId code = 0;
  std::uint32_t parent = kNoIndex;  // the call around it
  TraceId id;
};

// What happened on one thread. A thread that changed its name is several entries of the tables: their
// edges are one thread's.
struct ThreadSpans {
  std::vector<PhaseSpan> phases;  // parents before their children
  // In order of begin.
  std::vector<RegionRun> runs;
  std::vector<InlineCall> inlined;
};

// What the edges could not tell.
struct EdgeLosses {
  std::uint64_t begins = 0;  // ends without a begin
  std::uint64_t ends = 0;    // begins without an end
};

class Spans {
 public:
  Spans(const Tables& tables, const std::vector<TorchReading>& torch);

  bool empty() const { return edge_count_ == 0; }
  std::uint64_t edge_count() const { return edge_count_; }
  const EdgeLosses& losses() const { return losses_; }
  // One per thread (pid, tid), by row; row_of() says which.
  std::span<const ThreadSpans> threads() const { return threads_; }
  std::size_t row_of(ThreadId thread) const { return rows_[thread]; }

 private:
  std::vector<std::size_t> rows_;  // by ThreadId
  std::vector<ThreadSpans> threads_;
  EdgeLosses losses_;
  std::uint64_t edge_count_ = 0;
};

// The id in "Torch-Compiled Region: 1/0" and "... !0/3/0"; not valid: there is none.
TraceId region_id(std::string_view name);
// The name of a backward's run begins with torch.profiler's word for it.
bool is_backward_run(std::string_view name);

}  // namespace dynprof
