// Pictures by Graphviz' dot. It is another project's program: it runs without a shell, with the caller's
// rights (give up root's first) and limits on time and on the size of what it writes.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "symbolizer/base/result.h"

namespace dynprof {

// The first executable file `name` in `path` (a PATH), or "". Relative entries are passed over.
std::string find_program(std::string_view path, std::string_view name);

// The path of dot; without it, no pictures.
Result<std::string> find_dot(std::string_view path);

struct DrawLimits {
  std::chrono::milliseconds time{10'000};
  std::uint64_t output_bytes = 64ULL << 20;
};

// Writes the picture of `graph`, in the DOT language, to `svg_fd`, which stays open. On an error what was
// written is not whole.
Result<void> draw_svg(const std::string& dot, std::string_view graph, int svg_fd,
                      const DrawLimits& limits = {});

}  // namespace dynprof
