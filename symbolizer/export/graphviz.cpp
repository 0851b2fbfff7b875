#include "symbolizer/export/graphviz.h"

#include <fmt/format.h>

namespace dynprof {

Result<std::string> find_dot(std::string_view path) {
  std::string dot = find_program(path, "dot");
  if (!dot.empty()) return dot;
  return error("no call graphs: dot (package graphviz) not found in PATH", "apt install graphviz");
}

Result<void> draw_svg(const std::string& dot, std::string_view graph, int svg_fd,
                      const DrawLimits& limits) {
  ASSIGN_OR_RETURN(const int status, run_filter(dot, {"-Tsvg"}, graph, svg_fd, limits));
  if (status != 0) return error(fmt::format("dot failed with status {}", status));
  return {};
}

}  // namespace dynprof
