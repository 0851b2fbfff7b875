// Two looks at the same process as one: what torch has let go of since stays, and an id once known is
// kept. (A recompile makes torch drop the cache entry that said whose a graph is.)
#pragma once

#include "user/generated/generated_file.h"

namespace dynprof {

// Within `limits` of files and bytes, where what is there now comes first.
GeneratedCode merge_generated(GeneratedCode before, GeneratedCode now,
                              const GeneratedLimits& limits);

}  // namespace dynprof
