// The text `perf script` prints, for stackcollapse-perf.pl, speedscope, Firefox Profiler, Perfetto
// and gprof2dot. Python frames have their file as dso and address 0. The [cpu] column, which is
// optional, is left out: recordings do not hold it. Inlined functions have "inlined" as dso, as
// perf has it.
#pragma once

#include <vector>

#include "symbolizer/base/file_output.h"
#include "symbolizer/profile/analysis.h"

namespace dynprof {

// All samples, or those of some compiles. Finishes the sink.
Result<void> write_perf_script(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                               ByteSink& sink);

// As `perf script -F +srcline`: where it is known, "  file:line" on a line of its own under a
// native frame (gprof2dot takes none of these).
Result<void> write_perf_srcline(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                                ByteSink& sink);

}  // namespace dynprof
