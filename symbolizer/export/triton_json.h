// Kernels that Triton compiled or tuned outside of torch's compiles, as the member "triton" of compiles.json.
#pragma once

#include <nlohmann/json.hpp>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

// null where there are none.
nlohmann::ordered_json triton_json(const Analysis& analysis);

}  // namespace dynprof
