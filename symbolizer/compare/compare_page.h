// The comparison as a page, with a differential flame graph.
#pragma once

#include <string>

#include "symbolizer/base/file_output.h"
#include "symbolizer/compare/compare.h"

namespace dynprof {

Result<void> write_comparison(const Analysis& a, const Analysis& b, const Comparison& comparison,
                              const std::string& a_name, const std::string& b_name, ByteSink& sink);

}  // namespace dynprof
