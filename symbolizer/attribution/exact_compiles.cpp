#include "symbolizer/attribution/exact_compiles.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace dynprof {
namespace {

// torch gives up after 100; more comes from a hostile target.
constexpr std::size_t kMaxAttempts = 128;

// Times by torch's name, per compile while they are added up.
class TorchTimes {
 public:
  explicit TorchTimes(std::vector<ExactCompile>& compiles) : compiles_(compiles) {}

  TorchPhaseTime& of(std::uint32_t compile, const PhaseSpan& span) {
    auto [it, added] = places_.try_emplace((std::uint64_t{compile} << 32) | span.name,
                                           compiles_[compile].torch_phases.size());
    if (added) {
      compiles_[compile].torch_phases.push_back({.name = span.name, .phase = span.phase});
    }
    return compiles_[compile].torch_phases[it->second];
  }

 private:
  std::vector<ExactCompile>& compiles_;
  std::unordered_map<std::uint64_t, std::size_t> places_;
};

}  // namespace

ExactCompiles::ExactCompiles(const Spans& spans) {
  rows_.resize(spans.threads().size());
  for (std::size_t row = 0; row < rows_.size(); ++row) add_row(row, spans.threads()[row]);
}

void ExactCompiles::add_row(std::size_t number, const ThreadSpans& spans) {
  Row& row = rows_[number];
  row.phases = &spans.phases;
  if (spans.phases.empty()) return;
  flatten(row);
  row.root_number.assign(spans.phases.size(), kNoIndex);
  for (SpanIndex i = 0; i < spans.phases.size(); ++i) {
    if (!spans.phases[i].is_root(i)) continue;
    row.root_number[i] = static_cast<std::uint32_t>(row.attempts.size());
    row.attempts.emplace_back();
  }
  std::vector<std::vector<SpanIndex>> members(row.attempts.size());
  for (SpanIndex i = 0; i < spans.phases.size(); ++i) {
    SpanIndex root = spans.phases[i].root;
    if (root != kNoSpan) members[row.root_number[root]].push_back(i);
  }
  for (const std::vector<SpanIndex>& spans_of_root : members) {
    split_attempts(number, spans_of_root, row);
  }
  add_times(row);
}

void ExactCompiles::flatten(Row& row) {
  const std::vector<PhaseSpan>& phases = *row.phases;
  std::vector<SpanIndex> order(phases.size());
  std::iota(order.begin(), order.end(), SpanIndex{0});
  std::stable_sort(order.begin(), order.end(), [&](SpanIndex a, SpanIndex b) {
    return phases[a].begin_ns < phases[b].begin_ns;
  });
  std::vector<std::pair<SpanIndex, std::uint64_t>> open;  // and its end
  std::uint64_t cursor = 0;
  auto emit_until = [&](std::uint64_t time_ns) {
    if (time_ns > cursor) row.segments.push_back({cursor, time_ns, open.back().first});
    cursor = std::max(cursor, time_ns);
  };
  auto close_until = [&](std::uint64_t time_ns) {
    while (!open.empty() && open.back().second <= time_ns) {
      emit_until(open.back().second);
      open.pop_back();
    }
  };
  for (SpanIndex index : order) {
    const PhaseSpan& span = phases[index];
    close_until(span.begin_ns);
    if (!open.empty()) emit_until(span.begin_ns);
    cursor = std::max(cursor, span.begin_ns);
    std::uint64_t end = open.empty() ? span.end_ns : std::min(span.end_ns, open.back().second);
    open.emplace_back(index, end);
  }
  close_until(std::numeric_limits<std::uint64_t>::max());
}

// `spans` are those of one whole compile, the root first.
void ExactCompiles::split_attempts(std::size_t row_number, const std::vector<SpanIndex>& spans,
                                   Row& row) {
  const std::vector<PhaseSpan>& phases = *row.phases;
  const PhaseSpan& root = phases[spans.front()];
  bool counts = root.kind != CompileKind::kBackward && root.kind != CompileKind::kCompiledAutograd;
  bool has_spans = std::any_of(spans.begin(), spans.end(),
                               [&](SpanIndex i) { return phases[i].role == PhaseRole::kAttempt; });
  ExactCompile compile;
  compile.row = row_number;
  compile.root = spans.front();
  compile.thread = root.thread;
  compile.id = root.id;
  compile.kind = root.kind;
  if (!compile.kind && is_valid(root.id) && root.id.frame < 0) {
    compile.kind = CompileKind::kCompiledAutograd;
  }
  compile.attempt = std::max(root.attempt, 0);
  compile.attempt_told = root.attempt >= 0;
  compile.episode = episodes_++;
  compile.user_code = root.user_code;
  compile.begin_ns = root.begin_ns;
  compile.begin_known = root.begin_known;
  compile.begin_cpu_ns = root.begin_cpu_ns;
  std::vector<Attempt>& attempts = row.attempts[row.root_number[spans.front()]];
  auto add = [&] {
    attempts.push_back({compile.begin_ns, static_cast<std::uint32_t>(compiles_.size())});
    compiles_.push_back(compile);
    compile.first_of_episode = false;
  };
  bool first = true;
  for (SpanIndex i : spans) {
    const PhaseSpan& span = phases[i];
    // torch 2.6 has no phase per attempt: then by its word at each phase, which is a little later.
    std::int32_t number = has_spans ? span.number : span.attempt;
    if (!counts || number < 0 || (has_spans && span.role != PhaseRole::kAttempt)) continue;
    compile.attempt_told = true;
    if (std::exchange(first, false)) {
      compile.attempt = number;
    } else if (number > compile.attempt && span.begin_ns > compile.begin_ns &&
               attempts.size() + 1 < kMaxAttempts) {
      bool known = has_spans && span.begin_known;
      compile.end_ns = span.begin_ns;
      compile.end_known = known;
      compile.end_cpu_ns = span.begin_cpu_ns;
      compile.last_of_episode = false;
      add();
      compile.last_of_episode = true;
      compile.attempt = number;
      compile.begin_ns = span.begin_ns;
      compile.begin_known = known;
      compile.begin_cpu_ns = span.begin_cpu_ns;
    }
  }
  compile.end_ns = std::max(root.end_ns, compile.begin_ns);
  compile.end_known = root.end_known;
  compile.open_at_end = root.open_at_end;
  compile.end_cpu_ns = root.end_cpu_ns;
  add();
}

void ExactCompiles::add_times(Row& row) {
  const std::vector<PhaseSpan>& phases = *row.phases;
  TorchTimes times(compiles_);
  // Calls `visit(compile, length)` for the part of [begin, end] in each attempt.
  auto share_out = [&](SpanIndex root, std::uint64_t begin, std::uint64_t end, const auto& visit) {
    const std::vector<Attempt>& attempts = row.attempts[row.root_number[root]];
    for (std::size_t i = 0; i < attempts.size(); ++i) {
      std::uint64_t from = i == 0 ? begin : std::max(begin, attempts[i].begin_ns);
      std::uint64_t to = i + 1 == attempts.size() ? end : std::min(end, attempts[i + 1].begin_ns);
      if (from < to || (begin == end && from == to && from == begin)) {
        visit(attempts[i].compile, to - from);
        if (begin == end) return;
      }
    }
  };
  for (SpanIndex i = 0; i < phases.size(); ++i) {
    const PhaseSpan& span = phases[i];
    if (span.root == kNoSpan) continue;
    share_out(span.root, span.begin_ns, span.end_ns, [&](std::uint32_t compile, std::uint64_t ns) {
      TorchPhaseTime& time = times.of(compile, span);
      ++time.count;
      time.wall_ns += ns;
    });
    SpanIndex around =
        span.is_root(i) && span.parent != kNoSpan ? phases[span.parent].root : kNoSpan;
    if (around == kNoSpan) continue;
    share_out(around, span.begin_ns, span.end_ns,
              [&](std::uint32_t compile, std::uint64_t ns) { compiles_[compile].nested_ns += ns; });
  }
  for (const Segment& segment : row.segments) {
    const PhaseSpan& span = phases[segment.span];
    if (span.root == kNoSpan) continue;
    share_out(span.root, segment.begin_ns, segment.end_ns,
              [&](std::uint32_t compile, std::uint64_t ns) {
                compiles_[compile].phase_ns[static_cast<std::size_t>(span.phase)] += ns;
                times.of(compile, span).exclusive_ns += ns;
              });
  }
}

const ExactCompiles::Segment* ExactCompiles::segment_at(const Row& row,
                                                        std::uint64_t time_ns) const {
  auto after =
      std::partition_point(row.segments.begin(), row.segments.end(),
                           [&](const Segment& segment) { return segment.end_ns <= time_ns; });
  return after != row.segments.end() && after->begin_ns <= time_ns ? &*after : nullptr;
}

std::uint32_t ExactCompiles::compile_at(const Row& row, SpanIndex root,
                                        std::uint64_t time_ns) const {
  const std::vector<Attempt>& attempts = row.attempts[row.root_number[root]];
  auto after =
      std::partition_point(attempts.begin() + 1, attempts.end(),
                           [&](const Attempt& attempt) { return attempt.begin_ns <= time_ns; });
  return (after - 1)->compile;
}

ExactMoment ExactCompiles::at(std::size_t row_number, std::uint64_t time_ns) const {
  const Row& row = rows_[row_number];
  const Segment* segment = segment_at(row, time_ns);
  if (segment == nullptr) return {};
  const PhaseSpan& span = (*row.phases)[segment->span];
  if (span.root == kNoSpan) return {};
  return {compile_at(row, span.root, time_ns), span.phase};
}

std::uint32_t ExactCompiles::find(std::size_t row_number, std::uint64_t time_ns,
                                  const TraceId& id) const {
  const Row& row = rows_[row_number];
  const Segment* segment = segment_at(row, time_ns);
  if (segment == nullptr) return kNoIndex;
  const std::vector<PhaseSpan>& phases = *row.phases;
  SpanIndex root = phases[segment->span].root;
  while (root != kNoSpan && phases[root].id != id) {
    root = phases[root].parent == kNoSpan ? kNoSpan : phases[phases[root].parent].root;
  }
  return root == kNoSpan ? kNoIndex : compile_at(row, root, time_ns);
}

}  // namespace dynprof
