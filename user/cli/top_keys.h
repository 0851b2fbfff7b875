// Keys as a terminal sends them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dynprof {

enum class TopKey : std::uint8_t {
  kCompiles,
  kFinished,
  kProcesses,
  kFunctions,
  kNextPage,
  kSort,
  kFreeze,
  kHelp,
  kQuit,
  kUp,
  kDown,
  kPageUp,
  kPageDown,
};

// Takes what is complete from the front of `pending`. An escape sequence that was cut stays there; what means
// nothing is dropped.
std::vector<TopKey> take_keys(std::string& pending);

}  // namespace dynprof
