#include "user/torch/started_ranges.h"

#include <algorithm>
#include <utility>

namespace dynprof {
namespace {

// Open at once: more come from ends that were lost.
constexpr std::size_t kMaxOpen = 256;

}  // namespace

void StartedRanges::start(const Range& range) {
  if (open_.size() == kMaxOpen) {
    open_.erase(open_.begin());
    ++unknown_;
  }
  open_.push_back(range);
}

StartedRanges::Ended StartedRanges::end() {
  const std::size_t all = open_.size() + unknown_;
  unknown_ = all - std::min<std::size_t>(all, 1);
  return {.ranges = std::exchange(open_, {}), .end_seen = all == 1};
}

StartedRanges::Ended StartedRanges::finish() {
  unknown_ = 0;
  return {.ranges = std::exchange(open_, {}), .end_seen = false};
}

}  // namespace dynprof
