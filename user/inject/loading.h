// What the ways to load a library into a process have in common.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace dynprof {

struct LoadLimits {
  std::chrono::milliseconds safe_point{5000};  // until the main thread comes to one
  std::chrono::milliseconds loading{20'000};   // for the loading itself, once it has begun
  std::function<bool()> stop_requested;        // the user asked to stop; may be empty
  bool stop() const { return stop_requested && stop_requested(); }
};

struct Loaded {
  std::string how;               // "by a script of its interpreter", for a note
  std::uint64_t stopped_ns = 0;  // how long its main thread was stopped; 0: not at all
};

}  // namespace dynprof
