// Rows of the table of ranges that the program marks in itself.
#pragma once

#include <vector>

#include "symbolizer/profile/annotations.h"
#include "symbolizer/report/sections.h"

namespace dynprof {

// By name and kind, most time first. The recording must outlive them.
std::vector<AnnotationSums> annotation_rows(const Analysis& analysis);

// The samples inside ranges of that name, summed as StackCounts does.
std::vector<StackCount> counts_inside(const Analysis& analysis, std::string_view name);

}  // namespace dynprof
