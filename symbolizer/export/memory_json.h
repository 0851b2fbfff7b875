// How much memory a compile took, for compiles.json.
#pragma once

#include <nlohmann/json.hpp>

#include "symbolizer/attribution/compile_memory.h"

namespace dynprof {

nlohmann::ordered_json memory_json(const CompileMemory& memory);

}  // namespace dynprof
