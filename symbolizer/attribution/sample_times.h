// The time on a CPU that each sample stands for. By the clock of its thread, where that is known: from
// halfway to the thread's sample before until halfway to the next. Else one sampling period.
//
// The period alone is exact for a thread that has a CPU to itself. Where threads take turns, a turn
// may begin or end with a sample or without one, and nothing makes these cases equally many.
#pragma once

#include <cstdint>
#include <vector>

#include "symbolizer/attribution/spans.h"
#include "symbolizer/attribution/thread_clocks.h"
#include "symbolizer/recording/reader.h"

namespace dynprof {

class SampleTimes {
 public:
  SampleTimes(const Recording& recording, const Spans& spans, const ThreadClocks& clocks);

  // In ns, by the sample's place in the recording's order.
  std::uint64_t of(std::size_t sample) const {
    return sample < times_.size() ? times_[sample] : period_ns_;
  }

 private:
  std::uint64_t period_ns_;
  std::vector<std::uint32_t> times_;  // empty without clocks
};

}  // namespace dynprof
