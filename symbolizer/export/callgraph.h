// The call graph of a pstats file as SVG, made by gprof2dot and Graphviz' dot with the options
// TORCH_COMPILE_CPROFILE uses. Both are other people's programs: they run without a shell, with a
// time limit, and not as root when somebody stands behind sudo.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "symbolizer/base/file_output.h"
#include "symbolizer/base/result.h"

namespace dynprof {

struct CallgraphTools {
  std::string gprof2dot;  // paths
  std::string dot;
};

// The first executable file `name` in `path` (a PATH), or "". Relative entries are passed over.
std::string find_program(std::string_view path, std::string_view name);

// Fails with one sentence for people when one of them is not there: without it, no call graphs.
Result<CallgraphTools> find_callgraph_tools(std::string_view path);

struct CallgraphOptions {
  std::optional<FileOwner> run_as;  // whom to become first: SUDO_UID, SUDO_GID
  std::chrono::milliseconds timeout{60'000};
};

// `profile_path` must be readable by whom we become; the SVG is written to `svg_fd`, which stays
// open. On an error what was written there is not whole.
Result<void> write_callgraph(const CallgraphTools& tools, const std::string& profile_path,
                             int svg_fd, const CallgraphOptions& options);

}  // namespace dynprof
