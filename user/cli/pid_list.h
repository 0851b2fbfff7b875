// Process ids on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"

namespace dynprof {

// "4242" or "4242,4243": each once, in this order. Errors are of usage.
Result<std::vector<std::int32_t>> parse_pids(const std::string& text);
// For a verb that reads one process.
Result<std::int32_t> one_pid(const std::string& text, const char* verb);

}  // namespace dynprof
