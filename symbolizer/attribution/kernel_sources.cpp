#include "symbolizer/attribution/kernel_sources.h"

#include <algorithm>

#include "symbolizer/attribution/compile_modules.h"
#include "symbolizer/attribution/graph_text.h"
#include "symbolizer/attribution/kernel_plan.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxKernels = 4096;  // of a wrapper
constexpr std::size_t kMaxNodes = 20'000;  // of a graph

// "Model.forward (/tmp/model.py:9)" -> "Model.forward"
std::string_view qualname_of(const std::vector<GeneratedCopy>& files,
                             const GeneratedCopy& wrapper) {
  const auto code = std::find_if(files.begin(), files.end(), [&](const GeneratedCopy& file) {
    return file.kind == "bytecode" && file.pid == wrapper.pid && file.id == wrapper.id;
  });
  if (code == files.end()) return "";
  const std::string_view function = code->function;
  return function.substr(0, function.find(" ("));
}

}  // namespace

const GeneratedCopy* captured_nodes(const std::vector<GeneratedCopy>& files,
                                    const GeneratedCopy& wrapper) {
  const GeneratedCopy* found = nullptr;
  for (const GeneratedCopy& file : files) {
    const bool captured = file.kind == "fx_graph" && file.name.starts_with("captured_graph") &&
                          file.pid == wrapper.pid && file.id == wrapper.id;
    // Of one with code the nodes are in a second file.
    if (captured && (found == nullptr || file.name.starts_with("captured_graph_nodes")))
      found = &file;
  }
  return found;
}

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
    const std::vector<GraphNode> post_grad = read_graph(tables.blobs[graph->body], kMaxNodes);
    add_lines(plan, post_grad);
    if (const GeneratedCopy* captured = captured_nodes(files, wrapper))
      add_modules(plan, post_grad, read_graph(tables.blobs[captured->body], kMaxNodes));
    const std::string_view qualname = qualname_of(files, wrapper);
    for (const PlannedKernel& kernel : plan.kernels) {
      KernelSource& of =
          sources_[{wrapper.pid, wrapper.id, wrapper.direction == "backward", kernel.name}];
      for (const std::string& line : kernel.lines) of.lines.push_back(valid_utf8(line));
      for (const std::string& module : kernel.modules)
        of.modules.push_back(valid_utf8(module_path(module, qualname)));
    }
  }
}

const KernelSource& KernelSources::of(std::int32_t pid, const TraceId& id, bool backward,
                                      const std::string& kernel) const {
  static const KernelSource kNone;
  const auto at = sources_.find({pid, id, backward, kernel});
  return at == sources_.end() ? kNone : at->second;
}

}  // namespace dynprof
