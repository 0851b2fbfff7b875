// Spans of time, [first, second).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace dynprof {

using Interval = std::pair<std::uint64_t, std::uint64_t>;

// How long they are together, with what they have in common counted once. Sorts them; one that ends before it begins is nothing.
inline std::uint64_t union_ns(std::vector<Interval>& times) {
  std::sort(times.begin(), times.end());
  std::uint64_t sum = 0, until = 0;
  for (const auto& [begin, end] : times) {
    const std::uint64_t from = std::max(begin, until);
    if (end > from) sum += end - from;
    until = std::max(until, end);
  }
  return sum;
}

// In order, and those that overlap or touch as one.
inline void join_intervals(std::vector<Interval>& times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  std::size_t last = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    if (times[i].first <= times[last].second)
      times[last].second = std::max(times[last].second, times[i].second);
    else
      times[++last] = times[i];
  }
  times.resize(last + 1);
}

}  // namespace dynprof
