// Which frames are a user's own code, as opposed to Python's, torch's, or what torch generated.
#pragma once

#include <vector>

#include "symbolizer/attribution/resolved.h"

namespace dynprof {

// Per stack the innermost frame of user code, 0: none.
std::vector<FrameId> innermost_user_frames(const Tables& tables, const ResolvedFrames& frames);

}  // namespace dynprof
