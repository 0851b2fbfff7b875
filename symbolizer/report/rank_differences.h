// What the ranks of a distributed job compiled differently.
#pragma once

#include <string>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

// "2 ranks: rank 1 also compiled 0/1, 4/1", "8 ranks compiled the same"; "" where there are no ranks. What most ranks
// compiled is what the others are compared with; of the smallest ranks where there is no such majority.
std::string rank_differences(const Attribution& attribution);

}  // namespace dynprof
