// The GPU's part of compiles.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

// "gpu": {...}; null where the recording has none.
nlohmann::ordered_json gpu_json(const Analysis& analysis);

}  // namespace dynprof
