// The pid namespace of this process, and so of all pids that users give and /proc shows. The kernel side
// has to use the same numbers, in a container too.
#pragma once

#include <cstdint>

#include "symbolizer/base/result.h"

namespace dynprof {

struct PidNamespace {
  std::uint32_t level = 0;  // namespaces around it; 0: the initial one
  std::uint32_t inode = 0;  // of /proc/self/ns/pid; 0 for the initial one
};

// Asks the kernel by running a BPF program once, unless this is the initial namespace.
Result<PidNamespace> find_pid_namespace();

// Before a skeleton is loaded.
template <class ReadOnlyData>
void set_pid_namespace(ReadOnlyData* data, const PidNamespace& ours) {
  data->pid_level = ours.level;
  data->pid_inode = ours.inode;
}

}  // namespace dynprof
