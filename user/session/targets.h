// The processes a recording was asked for, and which of them have not ended yet.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {

class Targets {
 public:
  void add(pid_t pid);
  bool contains(pid_t pid) const { return all_.contains(pid); }
  // Its exit event came.
  void ended(pid_t pid) { pidfds_.erase(pid); }
  // Asks the kernel too: exit events can be lost. False where there never was a target.
  bool all_ended();

 private:
  std::set<pid_t> all_;
  std::map<pid_t, UniqueFd> pidfds_;  // of those alive
};

}  // namespace dynprof
