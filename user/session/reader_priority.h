// The priority of the thread that reads events: as it was started while it keeps up, the highest while the ring is filling
// up. So it takes a CPU from the target only where events, or names of what was freed meanwhile, would be lost.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace dynprof {

// Of the calling thread, which uses it alone. Needs CAP_SYS_NICE; without it nothing changes.
class ReaderPriority {
 public:
  ReaderPriority() : before_(getpriority(PRIO_PROCESS, 0)) {}
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
  // The shortest slice lets a waking thread preempt (Linux 6.12; older kernels look at the nice value alone).
  void raise() {
    if (!raised_) set(-20, kShortestSliceNs);
    raised_ = true;
  }
  void lower() {
    if (raised_) set(before_, 0);
    raised_ = false;
  }

 private:
  static constexpr std::uint64_t kShortestSliceNs = 100'000;
  static constexpr std::uint64_t kLateNs = 10'000'000;
  static constexpr std::uint64_t kCalmNs = 1'000'000'000;

  static void set(int nice, std::uint64_t slice_ns) {
    struct {  // struct sched_attr of linux/sched/types.h, which glibc's headers clash with
      std::uint32_t size = 48;
      std::uint32_t policy = 0;  // SCHED_OTHER
      std::uint64_t flags = 0;
      std::int32_t nice = 0;
      std::uint32_t priority = 0;
      std::uint64_t runtime = 0, deadline = 0, period = 0;
    } attributes;
    attributes.nice = nice;
    attributes.runtime = slice_ns;
    if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) setpriority(PRIO_PROCESS, 0, nice);
  }

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
