// Which targets have not ended yet.
#pragma once

#include <sys/types.h>

#include <map>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {

class TargetsAlive {
 public:
  void add(pid_t pid);
  // Its exit event came.
  void ended(pid_t pid) { pidfds_.erase(pid); }
  // Asks the kernel too: exit events can be lost. False where there never was a target.
  bool all_ended();

 private:
  std::map<pid_t, UniqueFd> pidfds_;
  bool any_ = false;
};

}  // namespace dynprof
