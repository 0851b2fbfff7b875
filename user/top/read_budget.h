// How much of a core reading may cost: each read of the target's memory holds its lock on the memory map for a
// moment. What is not used is saved up to a limit, which pays for the first look.
#pragma once

#include <algorithm>

namespace dynprof {

class ReadBudget {
 public:
  static constexpr double kShare = 0.01;     // of a core
  static constexpr double kMostSaved = 0.3;  // seconds of CPU

  // Times are seconds of a monotonic clock.
  bool may_read(double now_s) {
    if (last_s_ > 0) left_s_ = std::min(kMostSaved, left_s_ + kShare * (now_s - last_s_));
    last_s_ = now_s;
    return left_s_ > 0;
  }
  void spend(double cpu_s) { left_s_ -= cpu_s; }

 private:
  double left_s_ = kMostSaved;
  double last_s_ = 0;
};

}  // namespace dynprof
