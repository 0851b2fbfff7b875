// The priority of the thread that reads events: while it keeps up it does not preempt what runs, and has the nice value that
// it was started with; while the ring is filling up it has the highest. So it takes a CPU from the target only where events,
// or names of what was freed meanwhile, would be lost.
#pragma once

#include <sys/resource.h>

#include <cstdint>

#include "user/kernel/thread_priority.h"

namespace dynprof {

// Of the calling thread, which uses it alone. Needs CAP_SYS_NICE; without it nothing changes.
class ReaderPriority {
 public:
  ReaderPriority() : before_(getpriority(PRIO_PROCESS, 0)) {
    set_thread_priority(before_, 0, WakePolicy::kWaits);
  }
  ~ReaderPriority() { lower(); }
  ReaderPriority(const ReaderPriority&) = delete;
  ReaderPriority& operator=(const ReaderPriority&) = delete;

  // After each turn: whether events were left, and by how much it came later than it had asked for.
  void follow(std::uint64_t now_ns, bool left, std::uint64_t late_ns) {
    if (left || late_ns > kLateNs) {
      raise();
      calm_at_ns_ = now_ns + kCalmNs;
    } else if (raised_ && now_ns >= calm_at_ns_) {
      lower();
    }
  }
  void raise() {
    if (!raised_) set_thread_priority(kFirstNice, kShortestSliceNs, WakePolicy::kPreempts);
    raised_ = true;
  }
  void lower() {
    if (raised_) set_thread_priority(before_, 0, WakePolicy::kWaits);
    raised_ = false;
  }

 private:
  static constexpr std::uint64_t kLateNs = 10'000'000;
  static constexpr std::uint64_t kCalmNs = 1'000'000'000;

  int before_;
  bool raised_ = false;
  std::uint64_t calm_at_ns_ = 0;
};

// For the work after the recording; permanent, since raising the priority again would require rights.
inline void give_way() {
  constexpr int kNice = 10;
  if (getpriority(PRIO_PROCESS, 0) < kNice) setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace dynprof
