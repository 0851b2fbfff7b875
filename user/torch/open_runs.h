// The runs of compiled code that one thread is in, outermost first. An end is a call that the
// function makes last; a function left by an exception or by a jump makes none, and is over when the
// thread's stack is above where it began.
#pragma once

#include <cstdint>
#include <vector>

namespace dynprof {

class OpenRuns {
 public:
  struct Run {
    std::uint64_t node = 0;  // address of the autograd node, 0: a compiled region
    std::uint64_t sp = 0;    // stack pointer where it began
    bool recorded = false;   // its begin is in the recording
  };

  // A run begins at `run.sp`. Returns the runs that were left before, innermost first.
  std::vector<Run> begin(const Run& run);
  // The function whose stack lies around `sp` ends; `node` as in Run. The last one of the result is the
  // run that ended, those before it were left. Empty: it began before we looked.
  std::vector<Run> end(std::uint64_t node, std::uint64_t sp);
  // The same of the innermost node, whichever it is: an exception leaves it.
  std::vector<Run> raised(std::uint64_t sp);

 private:
  template <class Is>
  std::vector<Run> end_innermost(const Is& is);

  std::vector<Run> open_;
};

}  // namespace dynprof
