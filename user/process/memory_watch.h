// Reads how much memory the followed Python processes have, some 10 times a second while one of them compiles: the
// kernel keeps the most that a process ever had, but not when. Not in a passive recording, where no event says that
// one compiles.
#pragma once

#include <cstdint>

#include "symbolizer/recording/writer.h"
#include "user/process/process_table.h"

namespace dynprof {

class MemoryWatch {
 public:
  static constexpr std::uint64_t kPeriodNs = 100'000'000;
  // For one reading: a machine may have thousands of processes. Those with the lowest pids are read.
  static constexpr std::size_t kMaxProcesses = 64;

  void tick(std::uint64_t now_ns, const ProcessTable& processes, RecordingWriter& writer);

 private:
  std::uint64_t next_ns_ = 0;
};

// Of its resident pages, from /proc/PID/statm, whose counts the kernel keeps anyway; 0: not known.
std::uint64_t resident_bytes(std::int32_t pid);

}  // namespace dynprof
