// The priority of the calling thread: it runs as soon as it has something to do while an UrgentPriority
// lives, and gives way to everything else after give_way().
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace dynprof {

// We need little time, but at once: the shortest slice lets a waking thread preempt (Linux 6.12; older
// kernels look at the nice value alone).
class UrgentPriority {
 public:
  UrgentPriority() : before_(getpriority(PRIO_PROCESS, 0)) { set(-20, kShortestSliceNs); }
  ~UrgentPriority() { set(before_, 0); }
  UrgentPriority(const UrgentPriority&) = delete;
  UrgentPriority& operator=(const UrgentPriority&) = delete;

 private:
  static constexpr std::uint64_t kShortestSliceNs = 100'000;

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
};

// For the work after the recording; permanent, since raising the priority again would require rights.
inline void give_way() {
  constexpr int kNice = 10;
  if (getpriority(PRIO_PROCESS, 0) < kNice) setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace dynprof
