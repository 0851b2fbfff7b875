// The user functions Dynamo traced in one compile, as CPython's pstats reads them:
// {(file, line, name): (primitive calls, calls, tottime, cumtime, callers)} and
// callers {(file, line, name): (calls, primitive calls, tottime, cumtime)}, as cProfile and torch's own
// profiler order them. A function that only called others is there with zeros: pstats, snakeviz and
// gprof2dot want every caller to have an entry of its own.
#pragma once

#include <string>

#include "symbolizer/profile/dynamo_profile.h"

namespace dynprof {

std::string dynamo_pstats_bytes(const DynamoProfile& profile);

}  // namespace dynprof
