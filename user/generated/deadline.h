// When a look at a target's memory must end.
#pragma once

#include <time.h>

#include <chrono>

namespace dynprof {

// When the thread that looks has used so much CPU time, which a busy machine does not lengthen, or when so much time has
// passed by the clock.
class LookDeadline {
 public:
  LookDeadline(std::chrono::nanoseconds cpu, std::chrono::nanoseconds by_the_clock)
      : cpu_end_(cpu_time() + cpu), end_(Clock::now() + by_the_clock) {}

  bool over() const { return Clock::now() >= end_ || cpu_time() >= cpu_end_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Of the calling thread.
  static std::chrono::nanoseconds cpu_time() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }

  std::chrono::nanoseconds cpu_end_;
  Clock::time_point end_;
};

inline bool over(const LookDeadline& deadline) { return deadline.over(); }

}  // namespace dynprof
