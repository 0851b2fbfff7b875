// Which frames are a user's own code, as opposed to Python's, torch's, or what torch generated.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/resolved.h"

namespace dynprof {

// A file of Inductor's, wherever its cache is: "ab/cab3….py" or "ab/cab3….main.so", named after a hash of
// some 50 characters.
bool is_inductor_file(std::string_view file);

// Whether code of this file is a user's own: not Python's, installed (other than as one of `packages`) or generated.
bool is_user_file(std::string_view file, std::span<const std::string> packages);

// Per stack the innermost frame of user code, 0: none. Installed `packages` are user code too.
std::vector<FrameId> innermost_user_frames(const Tables& tables, const ResolvedFrames& frames,
                                           std::span<const std::string> packages);

}  // namespace dynprof
