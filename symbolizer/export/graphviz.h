// Pictures by Graphviz' dot. It is another project's program: it runs without a shell, with the caller's
// rights (give up root's first) and limits on time and on the size of what it writes.
#pragma once

#include <string>
#include <string_view>

#include "symbolizer/base/result.h"
#include "symbolizer/export/external_program.h"

namespace dynprof {

// The path of dot; without it, no pictures.
Result<std::string> find_dot(std::string_view path);

using DrawLimits = ProgramLimits;

// Writes the picture of `graph`, in the DOT language, to `svg_fd`, which stays open. On an error what was
// written is not whole.
Result<void> draw_svg(const std::string& dot, std::string_view graph, int svg_fd,
                      const DrawLimits& limits = {});

}  // namespace dynprof
