// Births, programs and deaths of processes, as a recording holds them.
#pragma once

#include <cstdint>

namespace dynprof {

enum class LifeKind : std::uint8_t {
  kFork = 1,    // a process began, as a copy of its parent
  kExec = 2,    // from here on it runs another program
  kExit = 3,    // its last thread ended
  kReaped = 4,  // its parent waited for it: `cpu_ns` is final
  kThere = 5,   // it was there when the recording began
  kLeft = 6,    // ... or still there when it ended
};

// Times are CLOCK_MONOTONIC. Strings are StringIds of the recording.
struct ProcessLife {
  std::uint64_t time_ns = 0;
  std::int32_t pid = 0;
  LifeKind kind = LifeKind::kFork;
  std::int32_t parent_pid = 0;  // kFork, kThere
  std::int32_t parent_tid = 0;  // kFork: the thread that forked, 0: not known
  std::uint32_t comm = 0;
  std::uint32_t exe = 0;  // kExec: the path as it was given to execve; kThere: as /proc has it
  // kExec, kThere: the arguments, a 0 byte between two; "" when command lines are not wanted.
  std::uint32_t command_line = 0;
  // Bytes the command line has; more than are kept: it was cut.
  std::uint32_t command_bytes = 0;
  // CPU time of the process so far, all threads. kExit: lacks what its last thread did since the last
  // tick; kReaped: what wait4 says; kFork: 0.
  std::uint64_t cpu_ns = 0;
  std::int32_t exit_code = 0;  // kExit: as wait4's status
  bool operator==(const ProcessLife&) const = default;
};

// What a MemoryPeak is of.
enum class PeakOf : std::uint8_t {
  kBeforeExec =
      1,  // of the process until it ran another program at that time; a vfork has what its parent has
  kProgram = 2,  // of the program that it runs
  kProcess = 3,  // of the process: that program and those it ran before (kernels before 6.16)
};

// The most resident memory so far. Each exec has a row, and each end of a process; the rows of those still
// there when the recording ended are of that time.
struct MemoryPeak {
  std::uint64_t time_ns = 0;  // equal to that of the ProcessLife written with it
  std::int32_t pid = 0;
  PeakOf of = PeakOf::kProgram;
  std::uint64_t bytes = 0;
  bool operator==(const MemoryPeak&) const = default;
};

// Resident memory of a process: some 10 readings a second while a process that is followed compiles.
struct MemorySample {
  std::uint64_t time_ns = 0;
  std::int32_t pid = 0;
  std::uint64_t bytes = 0;
  bool operator==(const MemorySample&) const = default;
};

}  // namespace dynprof
