// The kernels of an Inductor wrapper with their nodes, lines and nn.Modules, as JSON:
// kernel_plan_dump WRAPPER POST_GRAD_GRAPH CAPTURED_GRAPH_NODES
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "symbolizer/attribution/kernel_plan.h"

namespace {

std::string content(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  dynprof::KernelPlan plan = dynprof::read_kernel_plan(content(argv[1]), 4096);
  const auto post_grad = dynprof::read_graph(content(argv[2]), 20'000);
  dynprof::add_lines(plan, post_grad);
  dynprof::add_modules(plan, post_grad, dynprof::read_graph(content(argv[3]), 20'000));
  std::fputs(dynprof::kernel_plan_json(plan).c_str(), stdout);
  return 0;
}
