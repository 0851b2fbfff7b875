// The state of a process or a thread, as /proc/PID/stat has it, in one word.
#pragma once

#include <string>

namespace dynprof {

// "running", "sleeping", "blocked" (in the kernel, mostly for a disk), ...
inline std::string state_word(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
    case 'I':
      return "sleeping";
    case 'D':
      return "blocked";
    case 'T':
    case 't':
      return "stopped";
    case '?':
    case 'X':
    case 'Z':
      return "ended";
    default:
      return std::string("in state ") + state;
  }
}

}  // namespace dynprof
