// The process tree below some processes, as it is now.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace dynprof {

struct Descendant {
  pid_t pid = 0;
  pid_t parent = 0;
};

// Children, grandchildren ... of `roots`, parents first, at most `limit`. Read from
// /proc/PID/task/TID/children, which races with forks: follow fork events first, then ask.
std::vector<Descendant> find_descendants(const std::vector<pid_t>& roots, std::size_t limit);

// Every process there is, kernel threads included, at most `limit`; races with forks in the same way.
std::vector<Descendant> find_all_processes(std::size_t limit);

}  // namespace dynprof
