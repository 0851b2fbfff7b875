// Names of frames as trace viewers show them.
#pragma once

#include <string>

#include "symbolizer/attribution/resolved.h"
#include "symbolizer/base/cap_text.h"

namespace dynprof {

// The function's name; a module body gets its file's name too ("<module> train.py"), because a
// stack of imports is otherwise a column of the same word.
std::string display_name(const ResolvedFrame& frame);

}  // namespace dynprof
