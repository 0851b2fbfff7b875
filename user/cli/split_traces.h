// `export -f chrome --split 10s`: a directory with a trace for each part of the recording's time, and of each rank.
#pragma once

#include "user/cli/options.h"

namespace dynprof {

int run_split(const CommandLine& line);

}  // namespace dynprof
