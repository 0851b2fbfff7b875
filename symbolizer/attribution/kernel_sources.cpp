#include "symbolizer/attribution/kernel_sources.h"

#include <algorithm>

#include "symbolizer/attribution/graph_text.h"
#include "symbolizer/attribution/kernel_plan.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxKernels = 4096;  // of a wrapper
constexpr std::size_t kMaxNodes = 20'000;  // of a graph

}  // namespace

KernelSources::KernelSources(const Tables& tables, const std::vector<GeneratedCopy>& files) {
  for (const GeneratedCopy& wrapper : files) {
    if (wrapper.kind != "wrapper" || !is_valid(wrapper.id)) continue;
    const auto graph = std::find_if(files.begin(), files.end(), [&](const GeneratedCopy& file) {
      return file.kind == "fx_graph" && file.name.find("post_grad_graph") != std::string::npos &&
             file.pid == wrapper.pid && file.id == wrapper.id &&
             file.direction == wrapper.direction;
    });
    if (graph == files.end()) continue;
    KernelPlan plan = read_kernel_plan(tables.blobs[wrapper.body], kMaxKernels);
    add_lines(plan, read_graph(tables.blobs[graph->body], kMaxNodes));
    for (const PlannedKernel& kernel : plan.kernels) {
      std::vector<std::string>& of =
          lines_[{wrapper.pid, wrapper.id, wrapper.direction == "backward", kernel.name}];
      for (const std::string& line : kernel.lines) of.push_back(valid_utf8(line));
    }
  }
}

const std::vector<std::string>& KernelSources::of(std::int32_t pid, const TraceId& id,
                                                  bool backward, const std::string& kernel) const {
  static const std::vector<std::string> kNone;
  const auto at = lines_.find({pid, id, backward, kernel});
  return at == lines_.end() ? kNone : at->second;
}

}  // namespace dynprof
