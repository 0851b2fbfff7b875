// The call graph of a pstats file as SVG, made by gprof2dot and Graphviz' dot with the options
// TORCH_COMPILE_CPROFILE uses. Both are other people's programs: they run without a shell, with the
// caller's rights (give up root's first) and limits on time and on the size of what they write.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

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
  std::chrono::milliseconds timeout{60'000};
  std::uint64_t output_bytes = 256ULL << 20;
};

// The profile is read from `profile_fd`, a file that we may open for reading once more (gprof2dot opens
// it as /dev/stdin); the SVG is written to `svg_fd`. Both stay open. On an error what was written is not
// whole.
Result<void> write_callgraph(const CallgraphTools& tools, int profile_fd, int svg_fd,
                             const CallgraphOptions& options);

}  // namespace dynprof
