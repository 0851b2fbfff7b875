#include "symbolizer/attribution/spans.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "symbolizer/attribution/phase_stack.h"

namespace dynprof {
namespace {

// Deeper than any program nests; more comes from lost ends, or from a hostile target.
constexpr std::size_t kMaxOpen = 512;
constexpr std::string_view kBackwardRun = "CompiledFunctionBackward";

// Begins and ends of one sort on one thread. Ends find the innermost open begin that is theirs; what
// is open above it lost its own.
template <class Span>
class Pairs {
 public:
  Pairs(std::vector<Span>& spans, EdgeLosses& losses) : spans_(spans), losses_(losses) {}

  Span& begin(std::uint64_t time_ns) {
    last_ns_ = std::max(last_ns_, time_ns);
    if (open_.size() == kMaxOpen) {
      ++losses_.ends;
      open_.erase(open_.begin());
    }
    open_.push_back(static_cast<std::uint32_t>(spans_.size()));
    Span& span = spans_.emplace_back();
    span.begin_ns = span.end_ns = last_ns_;
    return span;
  }
  // The one that ended; null: its begin was lost.
  template <class Is>
  Span* end(std::uint64_t time_ns, const Is& is) {
    std::uint64_t before = std::exchange(last_ns_, std::max(last_ns_, time_ns));
    auto found = std::find_if(open_.rbegin(), open_.rend(),
                              [&](std::uint32_t open) { return is(spans_[open]); });
    if (found == open_.rend()) {
      ++losses_.begins;
      return nullptr;
    }
    for (auto lost = open_.rbegin(); lost != found; ++lost) {
      spans_[*lost].end_ns = std::max(spans_[*lost].begin_ns, before);
      ++losses_.ends;
    }
    Span& span = spans_[*found];
    span.end_ns = last_ns_;
    span.end_known = true;
    open_.erase(found.base() - 1, open_.end());
    return &span;
  }
  // The innermost is over, since when is not known.
  void lose_innermost() {
    if (open_.empty()) return;
    ++losses_.ends;
    open_.pop_back();
  }
  // Still open at the last edge: they were at least until then.
  void finish() {
    for (std::uint32_t open : open_) spans_[open].end_ns = last_ns_;
    open_.clear();
  }
  std::uint32_t innermost() const { return open_.empty() ? kNoIndex : open_.back(); }

 private:
  std::vector<Span>& spans_;
  EdgeLosses& losses_;
  std::vector<std::uint32_t> open_;
  std::uint64_t last_ns_ = 0;
};

class ThreadReader {
 public:
  ThreadReader(const Tables& tables, const std::vector<TorchReading>& torch, ThreadSpans& out,
               EdgeLosses& losses)
      : tables_(tables),
        torch_(torch),
        out_(out),
        phases_(tables, torch, losses),
        waits_(out.waits, losses),
        runs_(out.runs, losses),
        inlined_(out.inlined, losses) {}

  void add(const SpanEdge& edge) {
    switch (edge.kind) {
      case EdgeKind::kPhaseBegin:
        return phases_.phase_begin(edge);
      case EdgeKind::kPhaseEnd:
        return phases_.phase_end(edge);
      case EdgeKind::kWatchBegin:
        return phases_.watch_begin(edge);
      case EdgeKind::kWatchEnd:
        return phases_.watch_end(edge);
      case EdgeKind::kRegionBegin:
        return region_begin(edge);
      case EdgeKind::kInlineBegin:
        return inline_begin(edge);
      case EdgeKind::kWaitBegin:
        return wait_begin(edge);
      case EdgeKind::kRegionEnd:
        if (edge.depth == kLeftBefore) return runs_.lose_innermost();
        runs_.end(edge.time_ns,
                  [&](const RegionRun& run) { return edge.name == 0 || run.name == edge.name; });
        return;
      case EdgeKind::kInlineEnd:
        inlined_.end(edge.time_ns, [&](const InlineCall& call) {
          return edge.code == 0 || call.code == edge.code;
        });
        return;
      case EdgeKind::kGraphBreak: {
        const TorchReading& torch = torch_[edge.context];
        out_.breaks.push_back(
            {edge.time_ns, edge.thread, edge.name, torch.speaks ? torch.id : TraceId{}});
        return;
      }
      case EdgeKind::kUserLine: {
        const TorchReading& torch = torch_[edge.context];
        out_.lines.push_back({edge.time_ns, edge.cpu_ns, edge.thread, edge.name,
                              torch.speaks ? torch.id : TraceId{}});
        return;
      }
      case EdgeKind::kWaitEnd:
        if (WaitSpan* wait = waits_.end(
                edge.time_ns, [&](const WaitSpan& open) { return open.name == edge.name; })) {
          wait->end_cpu_ns = edge.cpu_ns;
        }
        return;
    }
  }
  void finish() {
    out_.phases = phases_.finish();
    waits_.finish();
    runs_.finish();
    inlined_.finish();
  }

 private:
  void region_begin(const SpanEdge& edge) {
    RegionRun& run = runs_.begin(edge.time_ns);
    run.thread = edge.thread;
    run.name = edge.name;
    run.id = region_id(tables_.strings[edge.name]);
    run.backward = is_backward_run(tables_.strings[edge.name]);
  }
  void inline_begin(const SpanEdge& edge) {
    std::uint32_t parent = inlined_.innermost();
    InlineCall& call = inlined_.begin(edge.time_ns);
    call.thread = edge.thread;
    call.code = edge.code;
    call.parent = parent;
    if (torch_[edge.context].speaks) call.id = torch_[edge.context].id;
  }
  void wait_begin(const SpanEdge& edge) {
    WaitSpan& wait = waits_.begin(edge.time_ns);
    wait.thread = edge.thread;
    wait.name = edge.name;
    const TorchReading& torch = torch_[edge.context];
    if (torch.speaks) wait.id = torch.id;
    wait.attempt = torch.attempt;
    wait.begin_cpu_ns = edge.cpu_ns;
    for (const Marker& marker : tables_.contexts[edge.context].markers) {
      if (marker.readable && marker.user_code != 0) wait.user_code = marker.user_code;
    }
  }

  const Tables& tables_;
  const std::vector<TorchReading>& torch_;
  ThreadSpans& out_;
  PhaseStack phases_;
  Pairs<WaitSpan> waits_;
  Pairs<RegionRun> runs_;
  Pairs<InlineCall> inlined_;
};

// ---- wait counters beside phases ------------------------------------------------------------------

class WaitCompiles {
 public:
  WaitCompiles(const Tables& tables, ThreadSpans& spans) : tables_(tables), spans_(spans) {
    for (SpanIndex i = 0; i < spans.phases.size(); ++i) {
      if (spans.phases[i].parent == kNoSpan) outermost_.push_back(i);
    }
  }

  void apply() {
    std::uint64_t done_ns = 0;
    for (std::size_t i = 0; i < spans_.waits.size(); ++i) {
      const WaitSpan wait = spans_.waits[i];
      auto phase = find_torch_phase(tables_.strings[wait.name]);
      std::optional<CompileKind> kind = phase ? kind_of(phase->role) : std::nullopt;
      if (!kind || wait.begin_ns < done_ns) continue;  // inside another compile
      done_ns = wait.end_ns;
      auto around = std::partition_point(outermost_.begin(), outermost_.end(), [&](SpanIndex span) {
        return spans_.phases[span].end_ns <= wait.begin_ns;
      });
      if (around != outermost_.end() && spans_.phases[*around].begin_ns < wait.end_ns) {
        mend(around, wait, *kind);
      } else {
        add_compile(i, done_ns);
      }
    }
  }

 private:
  // Watching began or ended inside this compile: the counter tells the missing time.
  void mend(std::vector<SpanIndex>::iterator around, const WaitSpan& wait, CompileKind kind) {
    for (auto it = around; it != outermost_.end(); ++it) {
      PhaseSpan& root = spans_.phases[*it];
      if (root.begin_ns >= wait.end_ns) return;
      if (root.root != *it || kind_of(root.role) != kind) continue;
      bool other = is_valid(root.id) && is_valid(wait.id) && root.id != wait.id;
      if (other) continue;
      if (!is_valid(root.id)) root.id = wait.id;
      if (root.user_code == 0) root.user_code = wait.user_code;
      bool alone_before =
          it == outermost_.begin() || spans_.phases[*(it - 1)].end_ns <= wait.begin_ns;
      bool alone_after =
          it + 1 == outermost_.end() || spans_.phases[*(it + 1)].begin_ns >= wait.end_ns;
      if (!root.begin_known && alone_before) {
        root.begin_ns = std::min(root.begin_ns, wait.begin_ns);
        root.begin_known = true;
        root.begin_cpu_ns = wait.begin_cpu_ns;
      }
      if (!root.end_known && wait.end_known && alone_after && wait.end_ns >= root.end_ns) {
        root.end_ns = wait.end_ns;
        root.end_known = true;
        root.end_cpu_ns = wait.end_cpu_ns;
        root.open_at_end = false;
      }
    }
  }

  // This one was not watched: the counters inside it are its phases.
  void add_compile(std::size_t first, std::uint64_t end_ns) {
    std::vector<SpanIndex> open;
    for (std::size_t i = first; i < spans_.waits.size(); ++i) {
      const WaitSpan& wait = spans_.waits[i];
      if (i != first && wait.begin_ns >= end_ns) break;
      while (!open.empty() && spans_.phases[open.back()].end_ns <= wait.begin_ns) open.pop_back();
      auto own = static_cast<SpanIndex>(spans_.phases.size());
      PhaseSpan span;
      span.begin_ns = wait.begin_ns;
      span.end_ns = wait.end_ns;
      if (!open.empty()) span.end_ns = std::min(span.end_ns, spans_.phases[open.back()].end_ns);
      span.end_known = wait.end_known;
      span.open_at_end = !wait.end_known;
      span.thread = wait.thread;
      span.name = wait.name;
      span.attempt = wait.attempt;
      span.begin_cpu_ns = wait.begin_cpu_ns;
      span.end_cpu_ns = wait.end_cpu_ns;
      span.parent = open.empty() ? kNoSpan : open.back();
      auto known = find_torch_phase(tables_.strings[wait.name]);
      if (known) span.role = known->role;
      span.phase = known ? known->phase : spans_.phases[span.parent].phase;
      bool is_compile = kind_of(span.role).has_value();
      span.root = open.empty() || (is_compile && wait.id != root_id(span.parent))
                      ? own
                      : spans_.phases[span.parent].root;
      if (span.root == own) {
        span.id = wait.id;
        span.kind = kind_of(span.role);
        span.user_code = wait.user_code;
      }
      spans_.phases.push_back(span);
      open.push_back(own);
    }
  }
  const TraceId& root_id(SpanIndex span) const {
    return spans_.phases[spans_.phases[span].root].id;
  }

  const Tables& tables_;
  ThreadSpans& spans_;
  std::vector<SpanIndex> outermost_;  // in order of begin
};

}  // namespace

TraceId region_id(std::string_view name) {
  std::size_t space = name.rfind(' ');
  return space == std::string_view::npos ? TraceId{} : parse_trace_id(name.substr(space + 1));
}

bool is_backward_run(std::string_view name) { return name.starts_with(kBackwardRun); }

Spans::Spans(const Tables& tables, const std::vector<TorchReading>& torch)
    : edge_count_(static_cast<std::uint64_t>(
          std::count_if(tables.edges.begin(), tables.edges.end(),
                        [](const SpanEdge& edge) { return edge.kind != EdgeKind::kUserLine; }))) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> rows;
  for (const Thread& thread : tables.threads) {
    rows_.push_back(rows.try_emplace({thread.pid, thread.tid}, rows.size()).first->second);
  }
  threads_.resize(rows.size());
  std::vector<std::unique_ptr<ThreadReader>> readers(rows.size());
  for (const SpanEdge& edge : tables.edges) {
    std::size_t row = rows_[edge.thread];
    if (!readers[row]) {
      readers[row] = std::make_unique<ThreadReader>(tables, torch, threads_[row], losses_);
    }
    readers[row]->add(edge);
  }
  for (std::size_t row = 0; row < readers.size(); ++row) {
    if (!readers[row]) continue;
    readers[row]->finish();
    WaitCompiles(tables, threads_[row]).apply();
  }
}

}  // namespace dynprof
