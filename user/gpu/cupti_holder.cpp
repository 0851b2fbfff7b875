#include "user/gpu/cupti_holder.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "symbolizer/base/text.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxName = 64;
constexpr int kMaxAncestors = 16;
constexpr std::string_view kTorch =
    "torch.profiler, which up to mid-2026 stays subscribed until the job ends";

struct Tool {
  std::string_view library;  // that it puts into the process: how its file name begins
  std::string_view program;  // that starts the process; "": none
  std::string_view title;
};
constexpr std::array kTools = {
    Tool{"libToolsInjection", "nsys", "Nsight Systems"},
    Tool{"libcuda-injection", "ncu", "Nsight Compute"},
    Tool{"libsanitizer-collection", "compute-sanitizer", "Compute Sanitizer"},
    Tool{"libcudadebugger", "cuda-gdb", "cuda-gdb"},
};

bool maps(const std::vector<Mapping>& mappings, std::string_view name) {
  return std::any_of(mappings.begin(), mappings.end(), [&](const Mapping& mapping) {
    return mapping.is_file() && base_name(mapping.path).starts_with(name);
  });
}

// Another installation's, beside the one that reports.
bool has_two_libraries(const std::vector<Mapping>& mappings) {
  std::set<std::string> files;
  for (const Mapping& mapping : mappings)
    if (base_name(mapping.path).starts_with("libdynprof_cupti.so")) files.insert(mapping.path);
  return files.size() > 1;
}

std::string_view tool_that_started(pid_t pid) {
  for (int i = 0; i < kMaxAncestors && pid > 1; ++i) {
    const auto stat = read_process_stat(pid);
    if (!stat) break;
    for (const Tool& tool : kTools)
      if (stat->comm == tool.program) return tool.title;
    pid = stat->parent;
  }
  return {};
}

}  // namespace

std::string cupti_holder(pid_t pid, std::string_view name) {
  if (!name.empty()) return escape_terminal(name.substr(0, kMaxName));
  const auto mappings = read_mappings(pid);
  if (!mappings) return "unknown";
  for (const Tool& tool : kTools)
    if (maps(*mappings, tool.library)) return std::string(tool.title);
  if (has_two_libraries(*mappings)) return "the libdynprof_cupti.so of another dynprof-bpf";
  if (const std::string_view tool = tool_that_started(pid); !tool.empty()) return std::string(tool);
  if (maps(*mappings, "libtorch_cpu.so")) return std::string(kTorch);
  return "Nsight, cuda-gdb or another profiler";
}

}  // namespace dynprof
