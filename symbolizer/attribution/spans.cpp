#include "symbolizer/attribution/spans.h"

#include <algorithm>
#include <map>
#include <memory>
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
    }
  }
  void finish() {
    out_.phases = phases_.finish();
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

  const Tables& tables_;
  const std::vector<TorchReading>& torch_;
  ThreadSpans& out_;
  PhaseStack phases_;
  Pairs<RegionRun> runs_;
  Pairs<InlineCall> inlined_;
};

}  // namespace

TraceId region_id(std::string_view name) {
  std::size_t space = name.rfind(' ');
  return space == std::string_view::npos ? TraceId{} : parse_trace_id(name.substr(space + 1));
}

bool is_backward_run(std::string_view name) { return name.starts_with(kBackwardRun); }

Spans::Spans(const Tables& tables, const std::vector<TorchReading>& torch)
    : edge_count_(tables.edges.size() + tables.graph_breaks.size()) {
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
  }
}

}  // namespace dynprof
