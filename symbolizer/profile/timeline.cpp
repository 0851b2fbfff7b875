#include "symbolizer/profile/timeline.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace dynprof {
namespace {

constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMaxPeriodNs = 10'000'000'000;
// Python (DP_MAX_PYTHON_FRAMES), native and kernel frames together stay far below this.
constexpr std::uint32_t kMaxDepth = 8192;

std::uint64_t add_capped(std::uint64_t a, std::uint64_t b) {
  return a > kForever - b ? kForever : a + b;
}

// Where something last seen at `last_ns` ends when the thread's next sample is at `now_ns`.
std::uint64_t end_after(std::uint64_t last_ns, std::uint64_t now_ns, std::uint64_t period_ns) {
  return now_ns - last_ns <= 2 * period_ns ? now_ns : add_capped(last_ns, period_ns);
}

}  // namespace

std::uint64_t drawing_period_ns(const Meta& meta) {
  std::uint64_t period = meta.period_ns;
  if (period == 0 && meta.frequency_hz > 0) period = 1'000'000'000 / meta.frequency_hz;
  return std::clamp<std::uint64_t>(period, 1, kMaxPeriodNs);
}

// ---- StackIndex ---------------------------------------------------------------------------------

StackIndex::StackIndex(const Tables& tables) : nodes_(tables.stacks) {
  depths_.resize(nodes_.size(), 0);
  for (std::size_t id = 1; id < nodes_.size(); ++id) {
    StackId caller = nodes_[id].caller;
    depths_[id] = caller < id && depths_[caller] < kMaxDepth ? depths_[caller] + 1 : 1;
  }
  // Python code objects are stored by content, so their id is the function. Native symbols are
  // distinguished by (symbol, object); one without a name by where it is. What is inlined is displayed so.
  std::unordered_map<std::uint64_t, std::uint32_t> native[3];
  functions_.resize(tables.frames.size());
  auto next = static_cast<std::uint32_t>(tables.codes.size());
  for (std::size_t id = 0; id < tables.frames.size(); ++id) {
    const Frame& frame = tables.frames[id];
    if (frame.kind == FrameKind::kPython) {
      functions_[id] = frame.code;
      continue;
    }
    if (frame.symbol == 0) {
      functions_[id] = next++;
      continue;
    }
    std::uint64_t key = (std::uint64_t{frame.symbol} << 32) | frame.object;
    const std::size_t which = frame.kind == FrameKind::kKernel ? 1 : frame.inlined ? 2 : 0;
    auto [it, added] = native[which].try_emplace(key, next);
    if (added) ++next;
    functions_[id] = it->second;
  }
  function_count_ = next;
}

// ---- FrameRow -----------------------------------------------------------------------------------

FrameRow::FrameRow(const StackIndex& index, std::uint64_t period_ns)
    : index_(index), period_ns_(period_ns) {}

void FrameRow::cut(std::size_t keep, std::uint64_t end_ns, const Emit& emit) {
  while (open_.size() > keep) {
    const Open& open = open_.back();
    auto depth = static_cast<std::uint32_t>(open_.size() - 1);
    if (end_ns > open.begin_ns) emit(FrameSlice{open.begin_ns, end_ns, open.frame, depth});
    open_.pop_back();
  }
}

void FrameRow::close(const Emit& emit) {
  cut(0, returned_ ? last_ns_ : add_capped(last_ns_, period_ns_), emit);
}

std::uint64_t FrameRow::wait(std::uint64_t begin_ns, std::uint64_t end_ns, StackId stack,
                             std::uint32_t skip, bool root_missing, bool keeps_stack,
                             const Emit& emit) {
  const std::uint64_t begin = std::max(begin_ns, last_ns_);
  if (keeps_stack) {
    // Too long after the last sample its place is unknown.
    if (begin - last_ns_ > 2 * period_ns_) close(emit);
  } else {
    add(begin, stack, skip, root_missing, emit);
  }
  last_ns_ = std::max(begin, end_ns);
  returned_ = true;
  return open_.empty() ? begin : std::max(begin, add_capped(open_.back().begin_ns, 1));
}

void FrameRow::add(std::uint64_t time_ns, StackId stack, std::uint32_t skip, bool root_missing,
                   const Emit& emit) {
  std::uint64_t now = std::max(time_ns, last_ns_);
  bool gap = now - last_ns_ > 2 * period_ns_;
  bool same_root = skip == last_skip_ && root_missing == last_root_missing_;
  const bool returned = std::exchange(returned_, false);
  if (!gap && same_root && stack == last_stack_ && !open_.empty()) {
    last_ns_ = now;
    return;
  }
  std::uint64_t end = returned ? last_ns_ : end_after(last_ns_, now, period_ns_);
  if (gap || !same_root) cut(0, end, emit);
  last_ns_ = now;
  last_stack_ = stack;
  last_skip_ = skip;
  last_root_missing_ = root_missing;

  // open_[i] is the node of depth i - lead + skip + 1. Nodes are shared between stacks: where the
  // same one stands at the same depth, all below it is the same too.
  std::size_t lead = root_missing ? 1 : 0;
  added_.clear();
  StackId node = stack;
  for (std::uint32_t depth = index_.depth(stack); depth > skip; --depth) {
    std::size_t at = depth - skip - 1 + lead;
    if (at < open_.size() && open_[at].stack == node) break;
    added_.push_back(node);
    node = index_.caller(node);
  }
  std::size_t depth = index_.depth(stack) > skip ? index_.depth(stack) - skip + lead : lead;
  // The same function on another line goes on.
  std::size_t keep = std::min(depth - added_.size(), open_.size());
  while (!added_.empty() && keep < open_.size() &&
         open_[keep].function == index_.function(added_.back())) {
    open_[keep++].stack = added_.back();
    added_.pop_back();
  }
  cut(keep, end, emit);

  auto begin = [&] {
    return open_.empty() ? now : std::max(now, add_capped(open_.back().begin_ns, 1));
  };
  if (root_missing && open_.empty()) open_.push_back(Open{now, 0, kRootMissing, 0});
  for (; !added_.empty(); added_.pop_back()) {
    StackId added = added_.back();
    open_.push_back(Open{begin(), added, index_.frame(added), index_.function(added)});
  }
}

// ---- SpanRow ------------------------------------------------------------------------------------

SpanRow::SpanRow(const std::vector<Compile>& compiles, std::uint64_t period_ns)
    : compiles_(compiles), period_ns_(period_ns) {}

bool SpanRow::is_open(CompileIndex compile) const {
  return std::any_of(open_.begin(), open_.end(),
                     [&](const Open& open) { return open.compile == compile; });
}

std::uint64_t SpanRow::end_of(std::uint64_t last_ns, std::uint64_t now_ns) const {
  return end_after(std::min(last_ns, now_ns), now_ns, period_ns_);
}

void SpanRow::end_phase(std::uint64_t now_ns, const Emit& emit) {
  if (!std::exchange(in_phase_, false)) return;
  std::uint64_t end = end_of(phase_last_ns_, now_ns);
  Open& open = open_.back();
  open.inside_ns = std::max(open.inside_ns, end);
  if (end > phase_begin_ns_) emit(SpanSlice{phase_begin_ns_, end, open.compile, true, phase_});
}

void SpanRow::pop(std::uint64_t now_ns, const Emit& emit) {
  end_phase(now_ns, emit);
  Open open = open_.back();
  open_.pop_back();
  std::uint64_t end = std::max(end_of(open.last_ns, now_ns), open.inside_ns);
  if (!open_.empty()) {
    open_.back().last_ns = std::max(open_.back().last_ns, open.last_ns);
    open_.back().inside_ns = std::max(open_.back().inside_ns, end);
  }
  if (end > open.begin_ns)
    emit(SpanSlice{open.begin_ns, end, open.compile, false, Phase::kRuntime});
}

void SpanRow::add(std::uint64_t time_ns, CompileIndex compile, Phase phase, const Emit& emit) {
  std::uint64_t now = now_ns_ = std::max(time_ns, now_ns_);
  if (compile == kNoCompile && open_.empty()) return;

  if (compile != kNoCompile && is_open(compile)) {
    // Compiles above it have ended, whatever the table says of their last sample.
    while (open_.back().compile != compile) pop(now, emit);
  } else {
    // Not in the newest one: either that has ended, or this is a compile inside it.
    while (!open_.empty() && compiles_[open_.back().compile].last_ns < now) pop(now, emit);
    if (!open_.empty()) end_phase(now, emit);
    if (compile == kNoCompile) return;
    std::uint64_t begin = open_.empty() ? now : std::max(now, add_capped(open_.back().begin_ns, 1));
    open_.push_back(Open{compile, begin, now, now});
  }
  open_.back().last_ns = now;

  if (in_phase_ && (phase_ != phase || now - phase_last_ns_ > 2 * period_ns_)) end_phase(now, emit);
  if (!in_phase_) {
    in_phase_ = true;
    phase_ = phase;
    phase_begin_ns_ = std::max(now, add_capped(open_.back().begin_ns, 1));
  }
  phase_last_ns_ = now;
}

void SpanRow::close(const Emit& emit) {
  while (!open_.empty()) pop(kForever, emit);
}

}  // namespace dynprof
