// Times of one recording by name, to be put beside those of another.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

struct NamedTime {
  std::uint64_t ns = 0;
  std::uint64_t count = 0;
  void add(std::uint64_t more_ns, std::uint64_t more) {
    ns += more_ns;
    count += more;
  }
};
// Names mean the same in both recordings: without ids, pids, and folders above the last.
using TimesByName = std::map<std::string, NamedTime>;

struct CompileTimes {
  TimesByName wall;            // of the function and kind compiled
  TimesByName groups;          // of wall where `exact`, else of CPU
  bool exact = true;           // begin and end of each are known
  std::uint64_t ready_ns = 0;  // no CPU was free
  std::uint64_t left_out = 0;  // over before the recording
};
CompileTimes compile_times(const Analysis& analysis);

struct SampledTimes {
  TimesByName compiling;  // in compiles, in work for them on other threads, and in compilers
  TimesByName running;    // the rest
};
SampledTimes function_times(const Analysis& analysis);
SampledTimes user_line_times(const Analysis& analysis);
// Code that torch generated, Python and native, outside compiles.
TimesByName generated_times(const Analysis& analysis);
TimesByName gpu_kernel_times(const Analysis& analysis);

}  // namespace dynprof
