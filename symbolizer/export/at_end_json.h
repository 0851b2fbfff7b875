// A compile that was open at the end, for compiles.json.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "symbolizer/report/still_open.h"

namespace dynprof {

// null: the compile is not among those open at the end.
nlohmann::ordered_json at_end_json(const std::vector<StillOpen>& open, CompileIndex compile);

}  // namespace dynprof
