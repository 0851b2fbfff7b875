// The GPU's part of compiles.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

// "gpu": {...}; null where the recording has none. Code of installed `user_packages` is user code too.
nlohmann::ordered_json gpu_json(const Analysis& analysis,
                                const std::vector<std::string>& user_packages = {});

}  // namespace dynprof
