#include "symbolizer/attribution/phase_stack.h"

#include <algorithm>

namespace dynprof {
namespace {

// torch's own stays below 30; more comes from a damaged recording or a hostile target.
constexpr std::size_t kMaxDepth = 512;

}  // namespace

std::uint64_t PhaseStack::advance(const SpanEdge& edge) {
  last_ns_ = now_ns_;
  now_ns_ = std::max(now_ns_, edge.time_ns);
  return now_ns_;
}

void PhaseStack::name_span(PhaseSpan& span, StringId name) {
  span.name = name;
  std::optional<TorchPhase> known = find_torch_phase(tables_.strings[name]);
  if (known) {
    span.phase = known->phase;
    span.role = known->role;
    span.number = known->attempt;
  } else {
    span.phase = span.parent == kNoSpan ? Phase::kDynamo : spans_[span.parent].phase;
  }
}

// Whether a span inside a compile is another one.
bool PhaseStack::is_new_compile(const PhaseSpan& span, const TraceId& id) const {
  const PhaseSpan& around = spans_[spans_[span.parent].root];
  std::optional<CompileKind> kind = kind_of(span.role);
  if (is_valid(id) && is_valid(around.id)) return id != around.id;
  if (!kind) return false;
  if (around.role == PhaseRole::kCompiledAutograd) return kind != CompileKind::kCompiledAutograd;
  if (kind == CompileKind::kBackward && around.role != PhaseRole::kBackward) return true;
  // No id to tell: one "dynamo" inside another.
  return std::any_of(open_.begin(), open_.end(), [&](SpanIndex open) {
    return spans_[open].name == span.name && spans_[open].root == spans_[span.parent].root;
  });
}

void PhaseStack::push(StringId name, std::uint64_t begin_ns, bool known, const SpanEdge& edge,
                      const TraceId& id) {
  auto own = static_cast<SpanIndex>(spans_.size());
  PhaseSpan span;
  span.begin_ns = span.end_ns = begin_ns;
  span.begin_known = known;
  span.end_known = false;
  span.thread = edge.thread;
  span.parent = open_.empty() ? kNoSpan : open_.back();
  span.attempt = torch_[edge.context].attempt;
  name_span(span, name);
  SpanIndex around = span.parent == kNoSpan ? kNoSpan : spans_[span.parent].root;
  if (around == kNoSpan) {
    // A phase of a new name may be a whole compile too: torch says that one is open.
    if (kind_of(span.role) || is_valid(id)) span.root = own;
  } else {
    span.root = is_new_compile(span, id) ? own : around;
  }
  if (span.root == own) {
    span.id = id;
    span.kind = kind_of(span.role);
  }
  spans_.push_back(span);
  open_.push_back(own);
}

// What an edge says of the compile that is innermost now. `fullgraph_capture` begins before torch
// has an id for it.
void PhaseStack::learn(const SpanEdge& edge) {
  if (open_.empty() || spans_[open_.back()].root == kNoSpan) return;
  PhaseSpan& root = spans_[spans_[open_.back()].root];
  const TorchReading& torch = torch_[edge.context];
  if (torch.speaks && !is_valid(root.id)) {
    if (root.role != PhaseRole::kCompiledAutograd) {
      root.id = torch.id;
    } else if (torch.id.autograd >= 0) {
      root.id = {torch.id.autograd, -1, -1};
    }
  }
  if (torch.speaks && !root.kind && root.id == torch.id) root.kind = torch.kind;
  if (root.user_code != 0) return;
  const std::vector<Marker>& markers = tables_.contexts[edge.context].markers;
  auto marker = std::find_if(markers.rbegin(), markers.rend(),
                             [](const Marker& one) { return one.kind != MarkerKind::kAttempt; });
  if (marker == markers.rend() || !marker->readable) return;
  TraceId id{marker->autograd_id, marker->frame_id, marker->compile_id};
  if (id == root.id) root.user_code = marker->user_code;
}

void PhaseStack::close(std::uint64_t end_ns, bool known, bool open_at_end) {
  PhaseSpan& span = spans_[open_.back()];
  span.end_ns = std::max(span.begin_ns, end_ns);
  span.end_known = known;
  span.open_at_end = open_at_end;
  if (!known && !open_at_end) ++losses_.ends;
  open_.pop_back();
}

// They ended between the edge before this one and this one: it is not known when.
void PhaseStack::lose_ends_above(std::size_t depth) {
  while (open_.size() > depth) close(last_ns_, false, false);
}

void PhaseStack::phase_begin(const SpanEdge& edge) {
  std::uint64_t now = advance(edge);
  unwatched_.clear();
  std::size_t depth = edge.depth == 0 ? open_.size() + 1 : edge.depth;
  if (depth > kMaxDepth) {
    ++losses_.begins;
    return;
  }
  lose_ends_above(depth - 1);
  // Begins were lost: torch's list has their names, if it is whole.
  const std::vector<StringId>& phases = tables_.contexts[edge.context].torch.phases;
  bool whole = phases.size() == depth || phases.size() + 1 == depth;
  const TorchReading& torch = torch_[edge.context];
  const TraceId id = torch.speaks ? torch.id : TraceId{};
  while (open_.size() + 1 < depth) {
    ++losses_.begins;
    push(whole ? phases[open_.size()] : 0, now, false, edge, whole ? TraceId{} : id);
  }
  push(edge.name, now, true, edge, id);
  spans_.back().begin_cpu_ns = edge.cpu_ns;
  learn(edge);
}

void PhaseStack::phase_end(const SpanEdge& edge) {
  std::uint64_t now = advance(edge);
  std::size_t depth = edge.depth;
  if (depth == 0) {
    auto found = std::find_if(open_.rbegin(), open_.rend(),
                              [&](SpanIndex open) { return spans_[open].name == edge.name; });
    depth = static_cast<std::size_t>(open_.rend() - found);
  }
  if (depth == 0 || depth > open_.size()) {
    ++losses_.begins;
    return;
  }
  lose_ends_above(depth);
  learn(edge);
  PhaseSpan& span = open_at(depth);
  if (span.name == 0 && edge.name != 0) {
    name_span(span, edge.name);
    if (!span.kind && span.root == open_[depth - 1]) span.kind = kind_of(span.role);
  }
  if (edge.name != 0 && span.name != edge.name) {
    ++losses_.begins;
    return lose_ends_above(depth - 1);
  }
  span.end_cpu_ns = edge.cpu_ns;
  close(now, true, false);
}

// Watching was given up for a moment (hits were lost, a list moved). The compile and its attempt go
// on if torch still has the same id; whether the phases inside are the same is not known.
void PhaseStack::go_on(const SpanEdge& edge) {
  const TorchReading& torch = torch_[edge.context];
  const std::vector<StringId>& phases = tables_.contexts[edge.context].torch.phases;
  std::size_t same = 0;
  bool same_id = false;
  while (same < std::min(unwatched_.size(), phases.size())) {
    const PhaseSpan& span = spans_[unwatched_[same]];
    if (span.role == PhaseRole::kNone || span.root == kNoSpan || span.name != phases[same]) break;
    same_id = same_id || (torch.speaks && spans_[span.root].id == torch.id);
    ++same;
  }
  for (std::size_t i = 0; same_id && i < same; ++i) {
    PhaseSpan& span = spans_[unwatched_[i]];
    span.open_at_end = false;
    open_.push_back(unwatched_[i]);
  }
  unwatched_.clear();
}

void PhaseStack::watch_begin(const SpanEdge& edge) {
  std::uint64_t now = advance(edge);
  lose_ends_above(0);
  go_on(edge);
  const std::vector<StringId>& phases = tables_.contexts[edge.context].torch.phases;
  while (open_.size() < std::min(phases.size(), kMaxDepth)) {
    push(phases[open_.size()], now, false, edge, {});
  }
  learn(edge);
}

void PhaseStack::watch_end(const SpanEdge& edge) {
  std::uint64_t now = advance(edge);
  unwatched_ = open_;
  while (!open_.empty()) close(now, false, true);
}

std::vector<PhaseSpan> PhaseStack::finish() {
  while (!open_.empty()) close(now_ns_, false, true);
  return std::move(spans_);
}

}  // namespace dynprof
