// compiles.json: the ledger, one object per compile attempt. Schema version 1: fields are only
// added. What is not known is null (a time is never 0 for that) or, for a list, empty.
#pragma once

#include <string>
#include <vector>

#include "symbolizer/profile/analysis.h"

namespace dynprof {

// All compiles, or only these. Code of installed `user_packages` is user code too.
std::string compiles_json(const Analysis& analysis, const std::vector<CompileIndex>& only = {},
                          const std::vector<std::string>& user_packages = {});

}  // namespace dynprof
