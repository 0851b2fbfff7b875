// The GPU's part of compiles.json.
#pragma once

#include <nlohmann/json.hpp>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

// "gpu": {...}; null where the recording has none.
nlohmann::ordered_json gpu_json(const Attribution& attribution);

}  // namespace dynprof
