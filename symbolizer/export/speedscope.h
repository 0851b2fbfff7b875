// speedscope.app's own JSON: one sampled profile per thread, weights in seconds. Frames are
// functions with the line they are defined on. Time in which nothing was sampled is left out, so a
// thread's total is samples times period.
#pragma once

#include <vector>

#include "symbolizer/base/file_output.h"
#include "symbolizer/profile/analysis.h"

namespace dynprof {

// All samples, or those of some compiles. Finishes the sink.
Result<void> write_speedscope(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                              ByteSink& sink);

}  // namespace dynprof
