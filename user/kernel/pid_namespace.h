// The pid namespace that we, and so all pids a user gives us and /proc shows us, are in. The kernel side
// has to speak of the same numbers, in a container too.
#pragma once

#include <cstdint>

#include "symbolizer/base/result.h"

namespace dynprof {

struct PidNamespace {
  std::uint32_t level = 0;  // namespaces around it; 0: the initial one
  std::uint32_t inode = 0;  // of /proc/self/ns/pid; 0 for the initial one
};

// Asks the kernel by running a BPF program once, unless we are in the initial namespace.
Result<PidNamespace> find_pid_namespace();

// Before a skeleton is loaded.
template <class ReadOnlyData>
void set_pid_namespace(ReadOnlyData* data, const PidNamespace& ours) {
  data->pid_level = ours.level;
  data->pid_inode = ours.inode;
}

}  // namespace dynprof
