// Ranges of NVTX that are started and ended by an id (nvtxRangeStartA, nvtxRangeEnd), on any thread. The id is a result
// of the first call, which is not probed, and 0 for all of them where no tool of NVTX is loaded. So an end is known to
// be that of a range only where a single one is open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "symbolizer/recording/model.h"

namespace dynprof {

// Of one domain of a process.
class StartedRanges {
 public:
  struct Range {
    std::uint64_t begin_ns = 0;
    ThreadId thread = 0;
    StringId name = 0;
  };
  // Ranges that are over, in the order of their begins. `end_seen` false: they were open until then, at least.
  struct Ended {
    std::vector<Range> ranges;
    bool end_seen = true;
  };

  void start(const Range& range);
  // One of them ends. Where several are open all are given back: which of them it was is not known.
  Ended end();
  // No end is seen any more.
  Ended finish();

 private:
  std::vector<Range> open_;
  std::size_t unknown_ = 0;  // given back while they were open: as many ends are still to come
};

}  // namespace dynprof
