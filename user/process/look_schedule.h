// When a process is examined again for Python and torch.
#pragma once

#include <cstdint>

namespace dynprof {

struct LookSchedule {
  unsigned looks = 0;         // so far, since its last exec
  std::uint64_t next_ns = 1;  // 0: never again
  bool marker_seen = false;   // since the last look: torch has been imported
};

}  // namespace dynprof
