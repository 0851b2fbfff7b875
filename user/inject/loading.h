// What the ways to load a library into a process have in common.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "symbolizer/base/result.h"

namespace dynprof {

struct LoadLimits {
  std::chrono::milliseconds safe_point{5000};  // until a thread comes to one
  std::chrono::milliseconds loading{20'000};   // for the loading itself, once it has begun
  std::function<bool()> stop_requested;        // the user asked to stop; may be empty
  bool stop() const { return stop_requested && stop_requested(); }
};

struct Loaded {
  std::string how;               // "by a script of its interpreter", for a note
  std::uint64_t stopped_ns = 0;  // how long its main thread was stopped; 0: not at all
};

// No thread came to a safe point in time, and the request was withdrawn: errno_value is ETIMEDOUT.
inline Error no_safe_point(const std::string& what, const LoadLimits& limits) {
  Error late = error(what + " for " + std::to_string(limits.safe_point.count()) + " ms");
  late.errno_value = ETIMEDOUT;
  return late;
}

}  // namespace dynprof
