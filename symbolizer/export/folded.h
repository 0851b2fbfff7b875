// Folded stacks: "root;caller;leaf count" per line, for flamegraph.pl, speedscope, inferno and
// gprof2dot -f collapse. Python frames read "function (file.py:line)" as py-spy writes them, kernel
// frames end in "_[k]" as flamegraph.pl colours by.
#pragma once

#include <vector>

#include "symbolizer/base/file_output.h"
#include "symbolizer/profile/analysis.h"

namespace dynprof {

struct FoldedOptions {
  std::vector<CompileIndex> compiles{};  // empty: every sample
  bool compile_root = false;  // first frame "[0/1]", "[runtime]", "[unattributed]" or the phase
  // With the waits of `compiles`, where the recording has any: the weight of a line is then
  // microseconds of wall time, not samples.
  bool waits = false;
  bool lines = true;  // false: first lines, so that a function is one frame
};

Result<void> write_folded(const Analysis& analysis, const FoldedOptions& options, ByteSink& sink);

}  // namespace dynprof
