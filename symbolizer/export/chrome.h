// Chrome trace JSON, for ui.perfetto.dev, chrome://tracing and speedscope, with Kineto's category
// names, thread names and time base so that it can be merged with traces of torch.profiler.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/base/file_output.h"

namespace dynprof {

// One trace file to write: everything (no compiles), or the samples of these compiles without the
// frames that called them. `open` is called when the first sample for it comes, and the file is
// finished with its last one, so that hundreds of compiles need only as many open files as there
// are compiles in progress at one time. A compile may be in one target only.
struct TraceTarget {
  std::vector<CompileIndex> compiles;
  std::function<Result<std::unique_ptr<ByteSink>>()> open;
};

// All of them in one pass over the samples. A target that fails does not stop the others; the first
// error is returned at the end.
Result<void> write_chrome_traces(const Attribution& attribution, std::vector<TraceTarget> targets);

// One of them, of everything or of these compiles.
Result<void> write_chrome_trace(const Attribution& attribution, std::vector<CompileIndex> compiles,
                                std::unique_ptr<ByteSink> sink);

}  // namespace dynprof
