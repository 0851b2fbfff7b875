#include "user/torch/line_pace.h"

#include <algorithm>

namespace dynprof {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds kPeriod = 50ms, kLongestPeriod = 500ms;
constexpr int kReadingsAtFirst = 20;
constexpr int kLongestReadings = kReadingsAtFirst * (kLongestPeriod / kPeriod);
constexpr int kShare = 100;
// So many readings without a compile, and it sleeps until the next event.
constexpr int kIdleReadings = 20;

}  // namespace

void LinePace::read(bool compiles) {
  const int longest = all_ ? kReadingsAtFirst : kLongestReadings;
  readings_ = compiles ? std::min(readings_ + 1, longest) : readings_ / 2;
  idle_ = compiles ? 0 : idle_ + 1;
}

std::chrono::nanoseconds LinePace::next(std::chrono::nanoseconds took) const {
  return std::clamp(std::max(kPeriod * readings_ / kReadingsAtFirst, kShare * took), kPeriod,
                    kLongestPeriod);
}

bool LinePace::idle() const { return idle_ >= kIdleReadings; }

}  // namespace dynprof
