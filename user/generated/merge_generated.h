// Two readings of the same process as one: what torch has freed since is kept, and an id once known is
// kept. (A recompile makes torch drop the cache entry that identified a graph's compile.)
#pragma once

#include "user/generated/generated_file.h"

namespace dynprof {

// Within `limits` of files and bytes, where what is there now comes first.
GeneratedCode merge_generated(GeneratedCode before, GeneratedCode now,
                              const GeneratedLimits& limits);

}  // namespace dynprof
