// Who used the CPUs of the machine while the recording ran, from the recording's fact of kind "machine".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/recording/model.h"

namespace dynprof {

struct MachineUse {
  bool known = false;
  std::uint32_t cpus = 0;
  std::uint64_t busy_ns = 0,
                idle_ns = 0;  // of all CPUs; what the host of a virtual machine took is in neither
  std::uint64_t steal_ns = 0;
  std::uint64_t own_ns = 0;  // dynprof-bpf itself
  // Processes that are not recorded, by short name, most first. Names are the machine's, not escaped.
  std::vector<std::pair<std::string, std::uint64_t>> others;
};

MachineUse read_machine_use(const Tables& tables);

}  // namespace dynprof
