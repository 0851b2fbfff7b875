// operators.json: torch's operators on sampled stacks. docs/reference/operators.schema.json describes it.
#pragma once

#include <string>

#include "symbolizer/report/sections.h"

namespace dynprof {

std::string operators_json(const Selection& selection);

}  // namespace dynprof
