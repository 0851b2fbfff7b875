// The lines of Inductor's C++ kernels, above which it writes nothing: by the order of the wrapper's calls. The calls of
// libraries (addmm, attention) are the nodes of their operators in the post-grad graph; which is which follows from the
// graph's inputs that both name. What depends on one of them and is needed by a later one is computed between the two.
// Where a single C++ kernel runs there, it is made of that; where several do, nothing is said. A kernel may be made of more
// nodes than are found.
#pragma once

#include <vector>

#include "symbolizer/attribution/graph_text.h"
#include "symbolizer/attribution/kernel_plan.h"

namespace dynprof {

// Whether it computes nothing: what it returns is another view of its argument, or memory without content.
bool is_view(const GraphNode& node);

// Adds nothing where calls and nodes do not match in number and in the graph's inputs that they use, or where a call
// comes before one that it depends on.
void add_cpp_lines(KernelPlan& plan, const std::vector<GraphNode>& post_grad);

}  // namespace dynprof
