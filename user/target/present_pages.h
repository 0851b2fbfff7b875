// Which pages of a process are in memory: only a read of another one can wait for whoever brings it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "user/target/remote_memory.h"

namespace dynprof {

// Keeps its memory from one question to the next; of one thread.
class PresentPages {
 public:
  // For each range whether all of its pages are present: then reading it does not wait. They may go at
  // any time, so this is no promise (awaiting_target.h). True of all where the kernel does not tell.
  const std::vector<bool>& of(pid_t pid, std::span<const RemoteRange> ranges);

 private:
  bool ask_by_call(pid_t pid);
  bool ask_by_file(pid_t pid);

  bool call_allowed_ = true;
  bool file_allowed_ = true;
  // Of the ranges' pages, in their order.
  std::vector<void*> pages_;
  std::vector<int> states_;
  std::vector<bool> present_;
};

}  // namespace dynprof
