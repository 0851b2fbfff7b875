#include "symbolizer/attribution/thread_clocks.h"

#include <algorithm>

namespace dynprof {

ThreadClocks::ThreadClocks(const Tables& tables, const Spans& spans) {
  for (const Wait& wait : tables.waits) {
    const std::size_t row = spans.row_of(wait.thread);
    if (row >= rows_.size()) rows_.resize(row + 1);
    // A thread does not run during a wait; of a sum of waits only the end is known so well.
    if (wait.kind != WaitKind::kNone && wait.span_ns == wait.length_ns)
      rows_[row].push_back({wait.begin_ns, wait.cpu_ns});
    rows_[row].push_back({wait.end_ns(), wait.cpu_ns});
  }
  for (std::vector<Mark>& row : rows_) {
    std::stable_sort(row.begin(), row.end(),
                     [](const Mark& a, const Mark& b) { return a.time_ns < b.time_ns; });
    std::uint64_t most = 0;
    for (Mark& mark : row) mark.cpu_ns = most = std::max(mark.cpu_ns, most);
  }
}

std::optional<double> ThreadClocks::cpu_at(std::size_t number, std::uint64_t time_ns) const {
  if (number >= rows_.size()) return std::nullopt;
  const std::vector<Mark>& row = rows_[number];
  auto after = std::lower_bound(row.begin(), row.end(), time_ns,
                                [](const Mark& at, std::uint64_t t) { return at.time_ns < t; });
  if (after == row.end()) return std::nullopt;
  if (after->time_ns == time_ns) return static_cast<double>(after->cpu_ns);
  if (after == row.begin()) return std::nullopt;
  const Mark& before = *(after - 1);
  const double part = static_cast<double>(time_ns - before.time_ns) /
                      static_cast<double>(after->time_ns - before.time_ns);
  return static_cast<double>(before.cpu_ns) +
         part * static_cast<double>(after->cpu_ns - before.cpu_ns);
}

}  // namespace dynprof
