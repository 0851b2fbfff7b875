#include "symbolizer/attribution/gpu_streams.h"

#include <algorithm>

namespace dynprof {

void GpuStreams::add(std::uint32_t stream, std::uint64_t begin_ns, std::uint64_t end_ns) {
  Stream& one = streams_[stream];
  begin_ns = std::max(begin_ns, one.until_ns);
  if (end_ns <= begin_ns) return;  // inside other work of the stream, or a recording that is wrong
  one.until_ns = end_ns;
  one.busy_ns += end_ns - begin_ns;
  intervals_.emplace_back(begin_ns, end_ns);
}

GpuStreams::Times GpuStreams::times() const {
  auto sorted = intervals_;
  std::sort(sorted.begin(), sorted.end());
  Times times;
  // Until these moments one stream, and two streams, have work running.
  std::uint64_t one_until = 0, two_until = 0;
  for (const auto& [begin_ns, end_ns] : sorted) {
    if (end_ns > one_until) times.busy_ns += end_ns - std::max(begin_ns, one_until);
    const std::uint64_t both_begin = std::max(begin_ns, two_until);
    const std::uint64_t both_end = std::min(end_ns, one_until);
    if (both_end > both_begin) times.overlap_ns += both_end - both_begin;
    two_until = std::max(two_until, both_end);
    one_until = std::max(one_until, end_ns);
  }
  return times;
}

}  // namespace dynprof
