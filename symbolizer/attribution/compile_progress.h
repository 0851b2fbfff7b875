// Joins what was read of open compiles, when the recording began and ended, with the compiles that samples and
// events show.
#pragma once

#include <vector>

#include "symbolizer/attribution/compile.h"
#include "symbolizer/attribution/torch_states.h"
#include "symbolizer/recording/reader.h"

namespace dynprof {

// Sets Compile::progress, and Compile::started_ns of those that began before the recording. Adds compiles that
// nothing else shows: their thread waited all the time, and no event was seen.
void join_progress(const Recording& recording, const std::vector<TorchReading>& torch,
                   std::vector<Compile>& compiles);

}  // namespace dynprof
