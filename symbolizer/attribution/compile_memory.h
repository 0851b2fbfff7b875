// How much memory compiles took: of their own process and of torch's compile workers from readings while they were
// open, of the compilers they started as the kernel accounts for them.
#pragma once

#include <cstdint>
#include <vector>

#include "symbolizer/attribution/process_tree.h"

namespace dynprof {

struct CompileMemory {
  // Of its process: resident at the first reading in the compile, and the most of all readings. 0: none was taken, or
  // the compile was over too soon. What else the process did meanwhile is in it.
  std::uint64_t first_bytes = 0, peak_bytes = 0;
  std::uint64_t readings = 0;
  std::uint64_t longest_gap_ns =
      0;  // in which nothing is known: between two readings, or to its ends
  // The most that one of its child processes had, and one of the compile workers in a reading; 0: not known.
  std::uint64_t child_bytes = 0, worker_bytes = 0;
};

class CompileMemories {
 public:
  CompileMemories(const Attribution& attribution, const ProcessTree& tree);
  const CompileMemory& of(CompileIndex compile) const { return of_[compile]; }

 private:
  std::vector<CompileMemory> of_;
};

}  // namespace dynprof
