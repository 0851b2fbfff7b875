// How the streams of one GPU shared the work of one run: how long each of them had work running, and how long several
// had at once.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "symbolizer/base/intervals.h"

namespace dynprof {

class GpuStreams {
 public:
  // In the order of their begins. Work of one stream that overlaps is counted once.
  void add(std::uint32_t stream, std::uint64_t begin_ns, std::uint64_t end_ns);

  struct Times {
    std::uint64_t busy_ns = 0;     // one stream or more had work running
    std::uint64_t overlap_ns = 0;  // two or more
  };
  Times times() const;
  struct Stream {
    std::uint64_t until_ns = 0;
    std::uint64_t busy_ns = 0;
  };
  const std::map<std::uint32_t, Stream>& streams() const { return streams_; }

 private:
  std::map<std::uint32_t, Stream> streams_;
  // Those of one stream are apart from each other.
  std::vector<Interval> intervals_;
};

}  // namespace dynprof
