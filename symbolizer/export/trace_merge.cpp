#include "symbolizer/export/trace_merge.h"

#include <algorithm>

namespace dynprof {

std::string merged_text(std::uint64_t grain_ns) {
  const std::uint64_t ms = grain_ns / 1'000'000;
  const std::string grain =
      ms < 1000 ? std::to_string(ms) + " ms" : std::to_string(ms / 1000) + " s";
  return "waits and slices shorter than " + grain +
         " are merged, and of each thread one sample in " + grain + " is drawn";
}

bool MergedWaits::add(const Wait& wait, std::uint64_t grain_ns) {
  if (grain_ns == 0 || wait.span_ns >= grain_ns) return false;
  if (count > 0 && wait.begin_ns / grain_ns != begin_ns / grain_ns) return false;
  if (count == 0) {
    *this = {};
    begin_ns = wait.begin_ns;
  }
  if (count == 0 || wait.length_ns > longest.length_ns) longest = wait;
  end_ns = std::max(end_ns, wait.end_ns());
  waited_ns += wait.length_ns;
  runnable_ns += wait.runnable_ns;
  ++count;
  return true;
}

std::pair<std::optional<SliceMerger::Merged>, bool> SliceMerger::add(Row row,
                                                                     std::uint64_t begin_ns,
                                                                     std::uint64_t end_ns) {
  if (grain_ns_ == 0) return {std::nullopt, true};
  State& state = rows_[row];
  const bool draw = end_ns - begin_ns >= grain_ns_;
  bool crosses = draw;  // what is merged must not reach into or out of a slice that is drawn
  while (!state.open.empty() && state.open.back() <= begin_ns) {
    state.open.pop_back();
    crosses = true;
  }
  Merged& waiting = state.waiting;
  std::optional<Merged> before;
  if (waiting.count > 0 && (crosses || begin_ns < waiting.begin_ns ||
                            (begin_ns >= waiting.end_ns &&  // else the two would overlap
                             begin_ns / grain_ns_ != waiting.begin_ns / grain_ns_))) {
    before = waiting;
    waiting = {};
  }
  if (draw) {
    state.open.push_back(end_ns);
    return {before, true};
  }
  if (waiting.count == 0) waiting = {row, begin_ns, begin_ns, 0, 0};
  if (end_ns > waiting.end_ns) {
    waiting.busy_ns += end_ns - std::max(begin_ns, waiting.end_ns);
    waiting.end_ns = end_ns;
  }
  ++waiting.count;
  return {before, false};
}

std::vector<SliceMerger::Merged> SliceMerger::take() {
  std::vector<Merged> left;
  for (const auto& [row, state] : rows_)
    if (state.waiting.count > 0) left.push_back(state.waiting);
  rows_.clear();
  return left;
}

}  // namespace dynprof
