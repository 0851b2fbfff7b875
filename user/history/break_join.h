// Which compile a graph break belongs to. torch keeps graph_break_reasons in one list for all; a break is
// assigned only where counting leaves one possibility.
#pragma once

#include <cstdint>
#include <map>

#include "user/history/compile_history.h"

namespace dynprof {

// FRAME_COMPILE_COUNTER: how often each frame id was compiled since torch._dynamo.reset().
using FrameCompiles = std::map<std::int64_t, std::int64_t>;

// Sets HistoryBreak::compile and HistoryRow::graph_breaks. `every_break` is false when the list was
// too long to be read whole: then nothing is joined.
void join_graph_breaks(CompileHistory& history, const FrameCompiles& compiles, bool every_break);

}  // namespace dynprof
