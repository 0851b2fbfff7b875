// The child processes of compiles as compiles.json has them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "symbolizer/attribution/process_tree.h"

namespace dynprof {

// Sets children_cpu_s, children and what was waited for; leaves them null where the recording cannot tell.
void add_children(nlohmann::ordered_json& row, const ProcessTree& tree,
                  const Attribution& attribution, CompileIndex compile);
// Sums over all children, and those that belong to no compile.
nlohmann::ordered_json processes_json(const ProcessTree& tree);

}  // namespace dynprof
