#include "symbolizer/export/call_graph.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace dynprof {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
// What is passed on: less stays behind in between than this share of it.
constexpr double kPassedOn = 0.95;
// Names kept of the functions on one edge.
constexpr std::size_t kMaxThrough = 100;

std::uint64_t share(std::uint64_t ns, double percent) {
  return static_cast<std::uint64_t>(static_cast<double>(ns) * percent / 100);
}

// Those nodes that `keep` is true for, and the edges between them.
template <class Keep>
void keep_nodes(CallGraph& graph, const Keep& keep) {
  std::vector<std::uint32_t> renumbered(graph.nodes.size(), kNone);
  std::vector<CallGraphNode> kept;
  for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (!keep(i)) continue;
    renumbered[i] = static_cast<std::uint32_t>(kept.size());
    kept.push_back(graph.nodes[i]);
  }
  graph.nodes = std::move(kept);
  std::erase_if(graph.edges, [&](const CallGraphEdge& edge) {
    return renumbered[edge.caller] == kNone || renumbered[edge.callee] == kNone;
  });
  for (CallGraphEdge& edge : graph.edges) {
    edge.caller = renumbered[edge.caller];
    edge.callee = renumbered[edge.callee];
  }
}

// The indices of the `most` largest.
template <class T>
std::vector<bool> largest(const std::vector<T>& all, std::size_t most) {
  std::vector<std::uint32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return all[a].ns > all[b].ns; });
  std::vector<bool> kept(all.size(), false);
  for (std::size_t i = 0; i < std::min(order.size(), most); ++i) kept[order[i]] = true;
  return kept;
}

// Makes functions that only pass a call on part of an edge.
class Shortener {
 public:
  Shortener(CallGraph& graph, std::uint64_t least_own_ns)
      : graph_(graph),
        least_own_ns_(least_own_ns),
        in_(graph.nodes.size()),
        out_(graph.nodes.size()) {
    for (std::uint32_t i = 0; i < graph.edges.size(); ++i) {
      const CallGraphEdge& edge = graph.edges[i];
      in_[edge.callee].push_back(i);
      out_[edge.caller].push_back(i);
    }
  }

  void run() {
    std::vector<bool> gone(graph_.nodes.size(), false);
    for (std::uint32_t i = 0; i < graph_.nodes.size(); ++i) gone[i] = shorten(i);
    std::erase_if(graph_.edges, [](const CallGraphEdge& edge) { return edge.caller == kNone; });
    keep_nodes(graph_, [&](std::uint32_t i) { return !gone[i]; });
  }

 private:
  bool shorten(std::uint32_t node) {
    if (in_[node].size() != 1 || out_[node].size() != 1) return false;
    if (graph_.nodes[node].own_ns >= least_own_ns_) return false;
    CallGraphEdge& in = graph_.edges[in_[node].front()];
    CallGraphEdge& out = graph_.edges[out_[node].front()];
    if (in.caller == node || out.callee == node || in.caller == out.callee) return false;
    if (static_cast<double>(out.ns) < kPassedOn * static_cast<double>(in.ns)) return false;
    for (const std::uint32_t other : out_[in.caller])
      if (graph_.edges[other].callee == out.callee) return false;  // it calls it directly too
    in.through.push_back(graph_.nodes[node].name);
    in.through.insert(in.through.end(), out.through.begin(), out.through.end());
    if (in.through.size() > kMaxThrough) in.through.resize(kMaxThrough);
    in.ns = std::min(in.ns, out.ns);
    in.callee = out.callee;
    std::replace(in_[out.callee].begin(), in_[out.callee].end(), out_[node].front(),
                 in_[node].front());
    out.caller = out.callee = kNone;
    return true;
  }

  CallGraph& graph_;
  std::uint64_t least_own_ns_;
  std::vector<std::vector<std::uint32_t>> in_, out_;  // edges by node
};

}  // namespace

CallGraph call_graph_of(const Profile& profile, const Functions& functions) {
  CallGraph graph;
  graph.ns = profile.ns;
  std::vector<std::uint32_t> of_function(functions.size(), kNone);
  for (const ProfileEntry& entry : profile.entries) {
    of_function[entry.function] = static_cast<std::uint32_t>(graph.nodes.size());
    const Function& function = functions[entry.function];
    CallGraphNode node{function.qualname, function.file, function.first_line, entry.on_stack_ns,
                       entry.leaf_ns};
    if (entry.function == Functions::kNoStack) node.name = "(no Python frame)";
    if (function.file == "~") node.file = function.object;
    graph.nodes.push_back(node);
  }
  for (const ProfileEntry& entry : profile.entries)
    for (const CallerEntry& caller : entry.callers)
      graph.edges.push_back(
          {of_function[caller.caller], of_function[entry.function], caller.on_stack_ns, {}});
  return graph;
}

CallGraph call_graph_of(const DynamoProfile& profile) {
  CallGraph graph;
  graph.ns = profile.root_ns > 0 ? profile.root_ns : profile.sum.own_ns;
  for (std::uint32_t i = 0; i < profile.functions.size(); ++i) {
    const DynamoFunction& function = profile.functions[i];
    graph.nodes.push_back({function.qualname, function.file, function.first_line,
                           function.calls.cumulative_ns, function.calls.own_ns});
    for (const DynamoCaller& caller : function.callers)
      graph.edges.push_back({caller.function, i, caller.calls.cumulative_ns, {}});
  }
  return graph;
}

CallGraph prune(const CallGraph& whole, const PruneLimits& limits) {
  CallGraph graph = whole;
  const std::uint64_t least_node = std::max<std::uint64_t>(share(graph.ns, limits.node_percent), 1);
  const std::uint64_t least_edge = std::max<std::uint64_t>(share(graph.ns, limits.edge_percent), 1);
  const std::size_t before = graph.nodes.size();
  std::erase_if(graph.edges, [&](const CallGraphEdge& edge) { return edge.ns < least_edge; });
  keep_nodes(graph, [&](std::uint32_t i) { return graph.nodes[i].ns >= least_node; });
  graph.left_out = before - graph.nodes.size();
  Shortener(graph, least_node).run();
  const std::size_t shortened = graph.nodes.size();
  const std::vector<bool> kept = largest(graph.nodes, limits.nodes);
  keep_nodes(graph, [&](std::uint32_t i) { return kept[i]; });
  graph.left_out += shortened - graph.nodes.size();
  if (graph.edges.size() > limits.edges) {
    const std::vector<bool> edges = largest(graph.edges, limits.edges);
    std::size_t at = 0;
    std::erase_if(graph.edges, [&](const CallGraphEdge&) { return !edges[at++]; });
  }
  return graph;
}

}  // namespace dynprof
