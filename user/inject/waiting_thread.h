// Where a thread waits in the kernel.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace dynprof {

struct WaitingThread {
  long call = -1;        // the system call; -1: none, as at a page fault
  std::uint64_t pc = 0;  // where it goes on in user space
};

// nullopt: it runs, or is about to, or cannot be examined. From /proc/PID/task/TID/syscall.
std::optional<WaitingThread> where_it_waits(pid_t pid, pid_t tid);

}  // namespace dynprof
