// The child processes of compiles as compiles.json has them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

// Sets children_cpu_s, one_off_s, children and what was waited for; leaves them null where the recording cannot
// tell.
void add_children(nlohmann::ordered_json& row, const Analysis& analysis, CompileIndex compile);
// Sums over all children, those that belong to no compile, and the peak memory of the targets.
nlohmann::ordered_json processes_json(const Analysis& analysis);

}  // namespace dynprof
