// A process of ours that parses untrusted bytes: it has no rights, little memory and time,
// and what it leaves behind is bytes to be checked.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dynprof {

struct ConfinedLimits {
  std::chrono::milliseconds wall{30'000};
  std::size_t output_bytes = 64 << 20;
};

// Exit status of a process that could not give up its rights, and did nothing.
inline constexpr int kNotConfined = 113;

struct ConfinedRun {
  std::vector<std::uint8_t> output;  // what it wrote, whatever became of it
  int status = -1;                   // of its exit, -1: it did not get there
  std::string problem;               // why it did not, "" when it ended by itself
};

// Starts `program` and waits for its end. It has `input` as descriptor 0, what it writes to 1 is
// the output, 2 is nowhere, `request` can be read from 3, and no other descriptor is open. It is
// killed when it takes longer or writes more than `limits` allow.
ConfinedRun run_confined(const std::string& program, const std::vector<std::string>& arguments,
                         int input, std::span<const std::uint8_t> request,
                         const ConfinedLimits& limits);

// For the process itself, before it looks at anything: no capabilities, another user where it is
// root's, no descriptor more than it has, no file written, no process started, bounded memory and
// CPU time. False: it could not, and must end.
bool confine_self();

}  // namespace dynprof
