// Which operators and graph nodes each kernel of an Inductor wrapper was made of: from the comments that
// Inductor writes above kernels and calls. Its C++ kernels have no such comment unless provenance tracking
// is on: see cpp_kernel_lines.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/graph_text.h"

namespace dynprof {

struct PlannedKernel {
  std::string name;      // "triton_poi_fused_add_0", "extern_kernels.addmm"
  std::string language;  // "triton", "cpp", "extern": a library's
  std::uint32_t launches = 0;
  std::vector<std::string> operators;  // "aten.addmm"
  std::vector<std::string> sources;    // nodes of the captured graph
  std::vector<std::string> nodes;      // nodes of the post-grad graph
  std::vector<std::string> lines;      // of the user's, by the nodes; filled in by add_lines()
  // As torch names them, "L['self'].layers.0"; filled in by add_modules().
  std::vector<std::string> modules;
};

// A kernel that the wrapper runs, in the order of the wrapper.
struct PlannedCall {
  std::size_t kernel = 0;  // index of KernelPlan::kernels
  std::string arguments;   // as they are written
};

// "torch.ops.aten.add.Tensor" -> "aten.add"
std::string_view operator_packet(std::string_view operation);
// Of a call of a library: "extern_kernels.addmm" -> "aten.addmm".
std::string library_operator(std::string_view callee);

struct KernelPlan {
  std::vector<PlannedKernel> kernels;  // in the order of the wrapper
  std::vector<PlannedCall> calls;
  bool has_arguments = false;  // get_args() and benchmark_compiled_module() are there
};

KernelPlan read_kernel_plan(std::string_view wrapper, std::size_t most);

// The user's lines of each kernel, from the nodes of the post-grad graph. A call of a library names no
// node of that graph: it gets the line of the only node with its operator, where there is one. C++ kernels: see
// cpp_kernel_lines.h.
void add_lines(KernelPlan& plan, const std::vector<GraphNode>& post_grad);

// The nn.Modules of each kernel, from the nodes of the captured graph: of those it was made of where Inductor names
// them (Triton kernels), else of those nodes of the post-grad graph whose module is known (node_modules.h).
void add_modules(KernelPlan& plan, const std::vector<GraphNode>& post_grad,
                 const std::vector<GraphNode>& captured);

std::string kernel_plan_json(const KernelPlan& plan);

}  // namespace dynprof
