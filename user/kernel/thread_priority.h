// The priority of the calling thread among those without a real-time one.
#pragma once

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace dynprof {

inline constexpr int kFirstNice = -20;
// The shortest slice lets a waking thread preempt (Linux 6.12; older kernels look at the nice value alone).
inline constexpr std::uint64_t kShortestSliceNs = 100'000;

// What happens when the thread wakes up.
enum class WakePolicy : std::uint32_t {
  kPreempts = SCHED_OTHER,  // it may take the CPU from what runs there
  kWaits = SCHED_BATCH,     // it waits until that sleeps, or has used up its slice
};

// `slice_ns` 0: the usual one. To raise it needs CAP_SYS_NICE; without it nothing changes, nor where whoever started this
// process has chosen another policy (`chrt`).
inline void set_thread_priority(int nice, std::uint64_t slice_ns, WakePolicy policy) {
  const int current = sched_getscheduler(0);
  if (current != SCHED_OTHER && current != SCHED_BATCH) return;
  struct {  // struct sched_attr of linux/sched/types.h, which glibc's headers clash with
    std::uint32_t size = 48;
    std::uint32_t policy = 0;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 0, deadline = 0, period = 0;
  } attributes;
  attributes.policy = static_cast<std::uint32_t>(policy);
  attributes.nice = nice;
  attributes.runtime = slice_ns;
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) setpriority(PRIO_PROCESS, 0, nice);
}

// For threads whose work need not be done soon, and that take no CPU from the target for it. They may have been started by
// one with a raised priority.
inline void set_background_priority() {
  set_thread_priority(std::max(0, getpriority(PRIO_PROCESS, 0)), 0, WakePolicy::kWaits);
}

}  // namespace dynprof
