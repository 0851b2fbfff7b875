// From spans to compiles: one per attempt, with begin, end, and what its time went to.
//
// A compile's attempts share out its time: an attempt lasts until the next one begins, the first
// begins with the compile and the last ends with it. Its phases (in our words) share out the
// attempt's time the same way, each moment counting for the innermost phase only; time inside
// another compile that was nested in it is that one's. torch's own phases are listed beside, with
// their whole length as torch counts it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "symbolizer/attribution/spans.h"

namespace dynprof {

struct TorchPhaseTime {
  StringId name = 0;
  Phase phase = Phase::kRuntime;
  std::uint64_t count = 0;
  std::uint64_t wall_ns = 0;       // with the phases inside it; twice where it is inside itself
  std::uint64_t exclusive_ns = 0;  // without
};

struct ExactCompile {
  std::size_t row = 0;       // of Spans::threads()
  SpanIndex root = kNoSpan;  // its whole compile, in that row
  ThreadId thread = 0;
  TraceId id;  // not valid: no edge has it
  std::optional<CompileKind> kind;
  std::int32_t attempt = 0;
  bool attempt_told = false;  // by a phase's name, or by torch; else 0 is only what is likely
  std::uint32_t episode = 0;  // the attempts of one compile share it
  bool first_of_episode = true;
  bool last_of_episode = true;
  CodeId user_code = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;
  bool begin_known = true, end_known = true;
  bool open_at_end = false;
  std::array<std::uint64_t, static_cast<std::size_t>(Phase::kCount)> phase_ns{};
  std::uint64_t nested_ns = 0;  // of other compiles inside it
  // CPU time of the thread at begin and end; 0: not known.
  std::uint64_t begin_cpu_ns = 0, end_cpu_ns = 0;
  std::vector<TorchPhaseTime> torch_phases;  // in order of first begin
};

// Who was working on a thread at a moment: the innermost compile and phase.
struct ExactMoment {
  std::uint32_t compile = kNoIndex;  // index into ExactCompiles::all()
  Phase phase = Phase::kRuntime;
};

class ExactCompiles {
 public:
  explicit ExactCompiles(const Spans& spans);

  const std::vector<ExactCompile>& all() const { return compiles_; }
  // kNoIndex where no compile is known to be open.
  ExactMoment at(std::size_t row, std::uint64_t time_ns) const;
  // The compile of this id at that moment, though another may be nested in it; kNoIndex: there is none.
  std::uint32_t find(std::size_t row, std::uint64_t time_ns, const TraceId& id) const;

 private:
  // Between two edges; in order of time, with gaps.
  struct Segment {
    std::uint64_t begin_ns, end_ns;
    SpanIndex span;
  };
  struct Attempt {
    std::uint64_t begin_ns;
    std::uint32_t compile;
  };
  struct Row {
    std::vector<Segment> segments;
    std::vector<std::vector<Attempt>> attempts;  // by number of the root
    std::vector<std::uint32_t> root_number;      // by SpanIndex
    const std::vector<PhaseSpan>* phases = nullptr;
  };
  void add_row(std::size_t row, const ThreadSpans& spans);
  void flatten(Row& row);
  void split_attempts(std::size_t row_number, const std::vector<SpanIndex>& spans, Row& row);
  void add_times(Row& row);
  const Segment* segment_at(const Row& row, std::uint64_t time_ns) const;
  std::uint32_t compile_at(const Row& row, SpanIndex root, std::uint64_t time_ns) const;

  std::vector<ExactCompile> compiles_;
  std::vector<Row> rows_;
  std::uint32_t episodes_ = 0;
};

}  // namespace dynprof
