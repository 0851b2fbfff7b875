// The member "runs" of compiles.json: runs of compiled regions.
#pragma once

#include <nlohmann/json.hpp>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

// null: no runs were counted.
nlohmann::ordered_json regions_json(const Analysis& analysis);

}  // namespace dynprof
