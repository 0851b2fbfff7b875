#include "symbolizer/attribution/waits.h"

#include <algorithm>
#include <map>
#include <utility>

#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/spans.h"
#include "symbolizer/attribution/thread_clocks.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxDepth = 16384;
constexpr std::size_t kMaxParts = 64;  // of one wait

std::uint64_t end_of(const Compile& compile, std::uint64_t period_ns) {
  return compile.first_ns + compile.wall_ns(period_ns);
}

// The part of `amount`, spread evenly over [begin, end), that lies in [from, to).
std::uint64_t share(std::uint64_t amount, std::uint64_t begin, std::uint64_t end,
                    std::uint64_t from, std::uint64_t to) {
  const std::uint64_t low = std::max(begin, from), high = std::min(end, to);
  if (low >= high) return 0;
  if (begin >= from && end <= to) return amount;
  const double part = static_cast<double>(high - low) / static_cast<double>(end - begin);
  return static_cast<std::uint64_t>(static_cast<double>(amount) * part);
}

}  // namespace

// What is known of one thread.
struct Waits::Row {
  std::vector<std::size_t> waits;   // by begin
  std::vector<std::uint64_t> ends;  // of these and all before: the latest
  struct Inside {
    std::uint64_t begin_ns, end_ns, latest_ns;
    CompileIndex compile;
  };
  std::vector<Inside> compiles;  // by begin

  std::uint64_t next_edge(std::uint64_t at) const;
};

bool Waits::place_of(const Tables& tables, StackId stack, FrameId& frame) {
  bool any = false;
  for (std::size_t depth = 0; stack != 0 && depth < kMaxDepth; ++depth) {
    const StackNode& node = tables.stacks[stack];
    const FrameKind kind = tables.frames[node.frame].kind;
    if (kind == FrameKind::kPython) {
      frame = node.frame;
      return true;
    }
    if (!any && kind == FrameKind::kNative) {
      frame = node.frame;
      any = true;
    }
    stack = node.caller;
  }
  return any;
}

Waits::Waits(const Attribution& attribution) : compiles_(attribution.compiles().size()) {
  const Recording& recording = attribution.recording();
  const Tables& tables = recording.tables();
  if (tables.waits.empty()) return;
  std::vector<Row> rows(attribution.spans().threads().size());
  auto row_of = [&](ThreadId thread) -> Row& {
    const std::size_t row = attribution.spans().row_of(thread);
    if (row >= rows.size()) rows.resize(row + 1);
    return rows[row];
  };
  for (std::size_t i = 0; i < tables.waits.size(); ++i) {
    const Wait& wait = tables.waits[i];
    Row& row = row_of(wait.thread);
    if (wait.kind == WaitKind::kNone) continue;
    row.waits.push_back(i);
    row.ends.push_back(std::max(wait.end_ns(), row.ends.empty() ? 0 : row.ends.back()));
  }
  const std::uint64_t period_ns = recording.meta().period_ns;
  for (CompileIndex i = 0; i < compiles_.size(); ++i) {
    const Compile& compile = attribution.compiles()[i];
    if (compile.thread == kNoThread || compile.first_ns == 0) continue;
    row_of(compile.thread).compiles.push_back({compile.first_ns, end_of(compile, period_ns), 0, i});
  }
  for (Row& row : rows) {
    std::stable_sort(
        row.compiles.begin(), row.compiles.end(),
        [](const Row::Inside& a, const Row::Inside& b) { return a.begin_ns < b.begin_ns; });
    std::uint64_t latest = 0;
    for (Row::Inside& inside : row.compiles)
      inside.latest_ns = latest = std::max(latest, inside.end_ns);
  }
  own(attribution, rows);
  for (const Row& row : rows)
    for (const Row::Inside& inside : row.compiles) sum(attribution, row, inside.compile);
}

// The first edge of a compile behind `at`.
std::uint64_t Waits::Row::next_edge(std::uint64_t at) const {
  auto inside =
      std::upper_bound(compiles.begin(), compiles.end(), at,
                       [](std::uint64_t t, const Inside& one) { return t < one.begin_ns; });
  std::uint64_t edge = inside != compiles.end() ? inside->begin_ns : UINT64_MAX;
  while (inside != compiles.begin()) {
    --inside;
    if (inside->latest_ns <= at) break;
    if (inside->end_ns > at) edge = std::min(edge, inside->end_ns);
  }
  return edge;
}

Waits::Owner Waits::owner_at(const Attribution& attribution, const Row& row, std::size_t thread,
                             std::uint64_t at) const {
  Owner owner;
  auto inside =
      std::upper_bound(row.compiles.begin(), row.compiles.end(), at,
                       [](std::uint64_t t, const Row::Inside& one) { return t < one.begin_ns; });
  while (inside != row.compiles.begin()) {
    --inside;
    if (inside->latest_ns <= at) break;
    if (inside->end_ns <= at) continue;
    owner = {inside->compile, Phase::kWait};
    break;
  }
  if (owner.compile == kNoCompile) return owner;
  const ExactMoment moment = attribution.exact().at(thread, at);
  if (moment.compile != kNoIndex) owner.phase = moment.phase;
  return owner;
}

void Waits::own(const Attribution& attribution, const std::vector<Row>& rows) {
  const Tables& tables = attribution.recording().tables();
  owners_.resize(tables.waits.size());
  for (std::size_t thread = 0; thread < rows.size(); ++thread) {
    const Row& row = rows[thread];
    for (std::size_t i : row.waits) {
      const Wait& wait = tables.waits[i];
      owners_[i] = owner_at(attribution, row, thread, wait.begin_ns);
      std::uint64_t at = wait.begin_ns;
      std::vector<Cut> cuts;
      while (at < wait.end_ns() && cuts.size() < kMaxParts) {
        std::uint64_t to = cuts.size() + 1 < kMaxParts ? row.next_edge(at) : wait.end_ns();
        to = std::min(to, wait.end_ns());
        cuts.push_back({owner_at(attribution, row, thread, at),
                        share(wait.length_ns, wait.begin_ns, wait.end_ns(), at, to)});
        at = to;
      }
      if (cuts.size() > 1) cuts_.emplace(i, std::move(cuts));
    }
  }
}

std::vector<Waits::Part> Waits::parts(const Tables& tables, std::size_t i) const {
  const Wait& wait = tables.waits[i];
  auto cut = cuts_.find(i);
  if (cut == cuts_.end()) return {{owners_[i], wait.count, wait.length_ns}};
  std::vector<Part> parts;
  for (const Cut& one : cut->second) {
    // Of many short waits in one, each part has its share.
    const std::uint64_t count = share(wait.count, 0, wait.length_ns, 0, one.ns);
    parts.push_back({one.owner, std::max<std::uint64_t>(count, 1), one.ns});
  }
  return parts;
}

void Waits::sum(const Attribution& attribution, const Row& row, CompileIndex index) {
  const Compile& compile = attribution.compiles()[index];
  const Tables& tables = attribution.recording().tables();
  const std::uint64_t from = compile.first_ns;
  const std::uint64_t to = end_of(compile, attribution.recording().meta().period_ns);
  CompileWaits& out = compiles_[index];
  out.wall_ns = to - from;
  const std::size_t thread = attribution.spans().row_of(compile.thread);
  const auto begin_cpu = attribution.clocks().cpu_at(thread, from);
  const auto end_cpu = attribution.clocks().cpu_at(thread, to);
  out.known = begin_cpu && end_cpu;
  if (out.known) out.on_cpu_ns = static_cast<std::uint64_t>(std::max(0.0, *end_cpu - *begin_cpu));
  std::map<std::pair<WaitKind, FrameId>, WaitPlace> places;
  // The first that may reach into it.
  auto first = std::upper_bound(row.ends.begin(), row.ends.end(), from);
  for (auto i = static_cast<std::size_t>(first - row.ends.begin()); i < row.waits.size(); ++i) {
    const Wait& wait = tables.waits[row.waits[i]];
    if (wait.begin_ns >= to) break;
    const std::uint64_t waited = wait.length_ns - wait.runnable_ns;
    std::uint64_t ns = 0;
    if (wait.span_ns == wait.length_ns) {  // one: it could run at its end
      const std::uint64_t woken = wait.begin_ns + waited;
      ns = share(waited, wait.begin_ns, woken, from, to);
      out.runnable_ns += share(wait.runnable_ns, woken, wait.end_ns(), from, to);
    } else {
      ns = share(waited, wait.begin_ns, wait.end_ns(), from, to);
      out.runnable_ns += share(wait.runnable_ns, wait.begin_ns, wait.end_ns(), from, to);
    }
    if (wait.kind == WaitKind::kPreempted || ns == 0) continue;
    out.wait_ns += ns;
    out.by_kind[static_cast<std::size_t>(wait.kind)] += ns;
    if (wait.kind != WaitKind::kOther && wait.stack != 0) out.named_ns += ns;
    FrameId frame = 0;
    const bool has_frame = place_of(tables, wait.stack, frame);
    WaitPlace& place = places[{wait.kind, has_frame ? frame : 0}];
    place.kind = wait.kind;
    place.frame = frame;
    place.has_frame = has_frame;
    place.ns += ns;
    place.count += wait.count;
  }
  for (auto& [key, place] : places) out.places.push_back(place);
  std::stable_sort(out.places.begin(), out.places.end(),
                   [](const WaitPlace& a, const WaitPlace& b) { return a.ns > b.ns; });
}

}  // namespace dynprof
