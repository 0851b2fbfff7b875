// The text `perf script` prints, for stackcollapse-perf.pl, speedscope, Firefox Profiler, Perfetto
// and gprof2dot. Python frames have their file as dso and address 0. The [cpu] column, which is
// optional, is left out: recordings do not hold it.
#pragma once

#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/base/file_output.h"

namespace dynprof {

// All samples, or those of some compiles. Finishes the sink.
Result<void> write_perf_script(const Attribution& attribution,
                               const std::vector<CompileIndex>& compiles, ByteSink& sink);

}  // namespace dynprof
