// Names and devices that the library in a process keeps in its memory (struct dynprof_gpu_tables), for a recording that came while
// another one was attached: it was not sent them. The memory is the target's: every length is checked.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cupti/wire.h"
#include "user/target/remote_memory.h"

namespace dynprof {

class TargetTables {
 public:
  // `address` of the struct in the process.
  TargetTables(pid_t pid, std::uint64_t address) : memory_(pid), address_(address) {}

  std::optional<std::string> name(std::uint32_t id);
  std::optional<dynprof_gpu_record> device(std::uint32_t number);

 private:
  std::optional<dynprof_gpu_tables> head();

  ProcessMemory memory_;
  std::uint64_t address_;
  unsigned failures_ = 0;  // nothing is read any more after some
};

}  // namespace dynprof
