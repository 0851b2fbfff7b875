// For how long a thread was on a CPU.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace dynprof {

// As the scheduler counts it (/proc/PID/task/TID/schedstat); nullopt: the thread is gone, or the kernel does not tell.
std::optional<std::uint64_t> thread_run_time_ns(pid_t pid, pid_t tid);

}  // namespace dynprof
