// Chrome trace JSON, for ui.perfetto.dev, chrome://tracing and speedscope, with Kineto's category
// names, thread names and time base so that it can be merged with traces of torch.profiler.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "symbolizer/base/file_output.h"
#include "symbolizer/profile/analysis.h"

namespace dynprof {

// A part of the recording, from its start on. What lasts longer is cut; slices keep their times.
struct TraceWindow {
  std::uint64_t from_ns = 0;
  std::uint64_t to_ns = std::numeric_limits<std::uint64_t>::max();
  // This process alone, without its child processes and the GPU; 0: all.
  std::int32_t pid = 0;
};

// One trace file to write: everything (no compiles), or the samples of these compiles without the
// frames that called them. `open` is called when the first sample for it comes, and the file is
// finished with its last one, so that hundreds of compiles need only as many open files as there
// are compiles in progress at one time. A compile may be in one target only.
struct TraceTarget {
  std::vector<CompileIndex> compiles;
  std::function<Result<std::unique_ptr<ByteSink>>()> open;
  TraceWindow window{};
};

// Of the whole trace, and of the traces of all compiles together, before compression.
inline constexpr std::uint64_t kMaxTraceBytes = 100'000'000;

// What had to be merged (trace_merge.h) because files would have been too large.
struct TraceMerges {
  std::size_t files = 0;
  std::uint64_t coarsest_ns = 0;
  // "": nothing was.
  std::string sentence(std::uint64_t max_bytes) const;
};

// All of them in two passes over the samples: the first tells how large each will be, so that neither a
// file nor the files of compiles together get larger than `max_bytes`. A target that fails does not stop
// the others; the first error is returned at the end.
Result<TraceMerges> write_chrome_traces(const Analysis& analysis, std::vector<TraceTarget> targets,
                                        std::uint64_t max_bytes = kMaxTraceBytes);

// One of them, of everything or of these compiles.
Result<TraceMerges> write_chrome_trace(const Analysis& analysis, std::vector<CompileIndex> compiles,
                                       std::unique_ptr<ByteSink> sink,
                                       std::uint64_t max_bytes = kMaxTraceBytes,
                                       const TraceWindow& window = {});

}  // namespace dynprof
