#include "user/live/graph_position.h"

#include <utility>

#include "user/target/fx_node.h"
#include "user/target/snapshot_memory.h"

namespace dynprof {
namespace {

constexpr std::string_view kLowering = "torch/_inductor/graph.py";
constexpr std::string_view kInterpreter = "torch/fx/interpreter.py";

}  // namespace

bool GraphPositions::learn(std::uint64_t graph, std::size_t count) {
  graph_ = graph;
  count_ = count;
  index_.clear();
  auto root = view_.values.attribute(graph, "_root");
  auto next = root ? node_member_offset(view_.objects, *root, "_next") : std::nullopt;
  if (!next) return false;
  SnapshotMemory pages(view_.memory());
  std::uint64_t node = *root;
  for (std::size_t i = 1; i <= count; ++i) {
    node = pages.read_pointer(node + *next).value_or(0);
    if (node == 0 || node == *root) break;
    index_.emplace(node, i);
  }
  return !index_.empty();
}

std::optional<GraphPosition> GraphPositions::of(const RemoteStack& stack) {
  std::uint64_t node = 0;
  for (const StackFrame& frame : stack.frames) {  // the innermost graph
    if (node == 0) {
      if (!view_.is_function(frame, kLowering, "GraphLowering.run_node")) continue;
      auto local = view_.local(frame, "n");
      if (!local || !view_.values.is_a(local->value, "Node")) return std::nullopt;
      node = local->value;
      continue;
    }
    if (!view_.is_function(frame, kInterpreter, "Interpreter.run")) continue;
    auto self = view_.local(frame, "self");
    auto graph = self ? view_.values.attribute(self->value, "graph") : std::nullopt;
    auto length = graph ? view_.values.attribute(*graph, "_len") : std::nullopt;
    auto count = length ? view_.values.read_int(*length) : std::nullopt;
    if (!count || *count <= 0 || static_cast<std::size_t>(*count) > kMaxNodes) return std::nullopt;
    const auto nodes = static_cast<std::size_t>(*count);
    auto found = index_.end();
    if (graph_ == *graph && count_ == nodes) found = index_.find(node);
    if (found == index_.end()) {
      if (!learn(*graph, nodes)) return std::nullopt;
      found = index_.find(node);
    }
    if (found == index_.end()) return std::nullopt;
    return GraphPosition{found->second, nodes};
  }
  return std::nullopt;
}

}  // namespace dynprof
