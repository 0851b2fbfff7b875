#include "symbolizer/export/exact_trace.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace dynprof {
namespace {

// Arrows from one compile to its runs; a training loop has millions.
constexpr std::size_t kMaxRunArrows = 100;
// Forward runs of one region that wait for their backward.
constexpr std::size_t kMaxWaiting = 1024;

struct Slice {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::uint32_t index = 0;  // of what it stands for
  CompileIndex compile = kNoCompile;
  bool is_compile = false;
};

// Makes the slices of one row nest strictly: each begins at least 1 ns after the one around it and
// ends with it at the latest. What has no length left goes.
std::vector<Slice> nested(std::vector<Slice> slices, std::uint64_t base_ns) {
  // The trace shows nothing before its start.
  for (Slice& slice : slices) slice.begin_ns = std::max(slice.begin_ns, base_ns);
  std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  std::vector<Slice> kept, open;
  for (Slice slice : slices) {
    while (!open.empty() && open.back().end_ns <= slice.begin_ns) open.pop_back();
    if (!open.empty()) {
      slice.begin_ns = std::max(slice.begin_ns, open.back().begin_ns + 1);
      slice.end_ns = std::min(slice.end_ns, open.back().end_ns);
    }
    if (slice.begin_ns >= slice.end_ns) continue;
    kept.push_back(slice);
    open.push_back(slice);
  }
  return kept;
}

// The moments arrows go from and to.
struct Point {
  std::size_t row = 0;
  std::uint64_t time_ns = 0;
};
struct DrawnRun {
  Point begin;
  const RegionRun* run = nullptr;
};

class Arrows {
 public:
  Arrows(TraceShared& shared, TraceFile& file) : shared_(shared), file_(file) {}

  void compile_ends(CompileIndex compile, const Slice& slice, std::size_t row) {
    if (!shared_.attribution.is_last_attempt(compile)) return;
    const Compile& of = shared_.attribution.compiles()[compile];
    ends_[{of.pid, of.id, of.kind == CompileKind::kBackward}].push_back(
        {{row, slice.end_ns - 1}, 0});
  }
  // In order of time, over all threads.
  void run_begins(const DrawnRun& drawn) {
    const RegionRun& run = *drawn.run;
    if (!is_valid(run.id)) return;
    std::int32_t pid = shared_.tables.threads[run.thread].pid;
    from_compile(drawn, {pid, run.id, run.backward});
    std::vector<Point>& waiting = waiting_[{pid, run.id}];
    if (!run.backward) {
      if (waiting.size() == kMaxWaiting) waiting.erase(waiting.begin());
      waiting.push_back(drawn.begin);
    } else if (!waiting.empty()) {
      arrow("fwdbwd", shared_.rows[waiting.back().row].runs_tid(), waiting.back(), drawn.begin);
      waiting.pop_back();
    }
  }
  void sort() {
    for (auto& [key, list] : ends_) {
      std::sort(list.begin(), list.end(),
                [](const End& a, const End& b) { return a.at.time_ns < b.at.time_ns; });
    }
  }

 private:
  struct End {
    Point at;
    std::size_t arrows = 0;
  };
  using Key = std::tuple<std::int32_t, TraceId, bool>;  // pid, id, backward

  void from_compile(const DrawnRun& drawn, const Key& key) {
    auto found = ends_.find(key);
    if (found == ends_.end()) return;
    auto after =
        std::partition_point(found->second.begin(), found->second.end(),
                             [&](const End& end) { return end.at.time_ns < drawn.begin.time_ns; });
    if (after == found->second.begin()) return;
    End& end = *(after - 1);
    if (end.arrows == kMaxRunArrows) return;
    ++end.arrows;
    arrow("compiled code", shared_.rows[end.at.row].spans_tid(), end.at, drawn.begin);
  }
  void arrow(const char* category, std::int64_t from_tid, const Point& from, const Point& to) {
    ++id_;
    const TraceRow& source = shared_.rows[from.row];
    const TraceRow& target = shared_.rows[to.row];
    file_.flow('s', category, id_, source.pid, from_tid, from.time_ns);
    file_.flow('f', category, id_, target.pid, target.runs_tid(), to.time_ns);
  }

  TraceShared& shared_;
  TraceFile& file_;
  std::map<Key, std::vector<End>> ends_;
  std::map<std::pair<std::int32_t, TraceId>, std::vector<Point>> waiting_;
  std::uint64_t id_ = 0;
};

}  // namespace

ExactTrace::ExactTrace(TraceShared& shared, const std::vector<CompileIndex>& only)
    : shared_(shared), whole_(only.empty()) {
  compiles_.resize(shared.rows.size());
  covered_.resize(shared.rows.size());
  auto add = [&](CompileIndex index) {
    const Compile& compile = shared.attribution.compiles()[index];
    if (compile.timing == kNoIndex) return;
    compiles_[shared.row_of_thread[compile.thread]].push_back(index);
  };
  if (whole_) {
    for (CompileIndex i = 0; i < shared.attribution.compiles().size(); ++i) add(i);
  } else {
    for (CompileIndex i : only) add(i);
  }
  for (std::size_t row = 0; row < compiles_.size(); ++row) {
    std::sort(compiles_[row].begin(), compiles_[row].end());
    for (CompileIndex index : compiles_[row]) {
      const Compile& compile = shared.attribution.compiles()[index];
      Range range{compile.first_ns, compile.last_ns};
      std::vector<Range>& covered = covered_[row];
      if (!covered.empty() && range.first <= covered.back().second) {
        covered.back().second = std::max(covered.back().second, range.second);
      } else {
        covered.push_back(range);
      }
    }
  }
}

std::vector<ExactTrace::Range> ExactTrace::outside(std::size_t row, Range slice) const {
  std::vector<Range> parts;
  const std::vector<Range>& covered = covered_[row];
  auto at = std::partition_point(covered.begin(), covered.end(),
                                 [&](const Range& range) { return range.second <= slice.first; });
  for (; at != covered.end() && at->first < slice.second; ++at) {
    if (slice.first < at->first) parts.push_back({slice.first, at->first});
    slice.first = std::max(slice.first, at->second);
  }
  if (slice.first < slice.second) parts.push_back(slice);
  return parts;
}

void ExactTrace::write_beside(TraceFile& file, std::size_t row,
                              std::vector<SpanSlice> slices) const {
  // They come when they end, the inner ones first; of two that begin together the outer one counts
  // as first.
  std::reverse(slices.begin(), slices.end());
  std::vector<Slice> parts;
  for (std::uint32_t i = 0; i < slices.size(); ++i) {
    for (auto [begin, end] : outside(row, {slices[i].begin_ns, slices[i].end_ns})) {
      parts.push_back({begin, end, i, slices[i].compile, !slices[i].is_phase});
    }
  }
  for (const Slice& part : nested(std::move(parts), shared_.base_ns)) {
    SpanSlice slice = slices[part.index];
    slice.begin_ns = part.begin_ns;
    slice.end_ns = part.end_ns;
    file.span(shared_.rows[row], slice);
  }
}

void ExactTrace::write(TraceFile& file) const {
  const Attribution& attribution = shared_.attribution;
  Arrows arrows(shared_, file);
  std::vector<DrawnRun> runs;
  for (std::size_t row = 0; row < shared_.rows.size(); ++row) {
    const TraceRow& drawn = shared_.rows[row];
    const ThreadSpans& spans = attribution.spans().threads()[row];
    std::vector<Slice> slices;
    for (CompileIndex index : compiles_[row]) {
      const Compile& compile = attribution.compiles()[index];
      slices.push_back({compile.first_ns, compile.last_ns, 0, index, true});
      for (SpanIndex i : shared_.members[row].at(attribution.timing(index)->root)) {
        const PhaseSpan& span = spans.phases[i];
        std::uint64_t begin = std::max(span.begin_ns, compile.first_ns);
        std::uint64_t end = std::min(span.end_ns, compile.last_ns);
        if (begin < end) slices.push_back({begin, end, i, index, false});
      }
    }
    for (const Slice& slice : nested(std::move(slices), shared_.base_ns)) {
      if (slice.is_compile) {
        file.span(drawn, {slice.begin_ns, slice.end_ns, slice.compile, false, Phase::kRuntime});
        arrows.compile_ends(slice.compile, slice, row);
      } else {
        file.phase(drawn, slice.begin_ns, slice.end_ns, slice.compile, spans.phases[slice.index]);
      }
    }
    if (!whole_) continue;
    std::vector<Slice> rows_runs;
    for (std::uint32_t i = 0; i < spans.runs.size(); ++i) {
      rows_runs.push_back({spans.runs[i].begin_ns, spans.runs[i].end_ns, i, kNoCompile, false});
    }
    for (const Slice& slice : nested(std::move(rows_runs), shared_.base_ns)) {
      const RegionRun& run = spans.runs[slice.index];
      file.run(drawn, slice.begin_ns, slice.end_ns, run);
      runs.push_back({{row, slice.begin_ns}, &run});
    }
  }
  arrows.sort();
  std::stable_sort(runs.begin(), runs.end(), [](const DrawnRun& a, const DrawnRun& b) {
    return a.begin.time_ns < b.begin.time_ns;
  });
  for (const DrawnRun& run : runs) arrows.run_begins(run);
}

}  // namespace dynprof
