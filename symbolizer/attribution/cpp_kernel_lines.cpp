#include "symbolizer/attribution/cpp_kernel_lines.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dynprof {
namespace {

constexpr std::string_view kViews[] = {
    "aten.view",
    "aten.reshape",
    "aten._unsafe_view",
    "aten.permute",
    "aten.transpose",
    "aten.t",
    "aten.expand",
    "aten.unsqueeze",
    "aten.squeeze",
    "aten.slice",
    "aten.select",
    "aten.split",
    "aten.split_with_sizes",
    "aten.unbind",
    "aten.as_strided",
    "aten.alias",
    "aten.detach",
    "aten.diagonal",
    "aten.unfold",
    "aten.empty",
    "aten.new_empty",
    "aten.new_empty_strided",
    "aten.empty_strided",
    "aten.sym_size",
};
constexpr std::size_t kMostRoots = 32;      // of a node
constexpr std::size_t kMostInOrder = 1000;  // calls that their inputs do not tell apart

struct Node {
  const GraphNode* of = nullptr;
  bool computes = false;
  bool is_library = false;           // its operator is one that the wrapper calls a library for
  std::size_t library = 0;           // the number of its call, from 1; 0: it is none of a library
  std::size_t after = 0;             // the last call of a library that it depends on; 0: none
  std::size_t before = 0;            // the first one that depends on it
  std::vector<std::size_t> inputs;   // nodes
  std::set<std::string_view> roots;  // the graph's inputs that it is a view of
};

class Matching {
 public:
  Matching(KernelPlan& plan, const std::vector<GraphNode>& graph) : plan_(plan) {
    std::set<std::string_view> in_graph;
    for (const GraphNode& one : graph) in_graph.insert(operator_packet(one.operation));
    for (const PlannedCall& call : plan.calls) {
      if (plan.kernels[call.kernel].language != "extern") continue;
      // One that is no node: what Inductor draws random seeds with.
      const std::string packet = library_operator(plan.kernels[call.kernel].name);
      if (!in_graph.contains(packet)) continue;
      libraries_.push_back(&call);
      operators_.insert(packet);
    }
    for (const GraphNode& one : graph) add(one);
  }

  // Gives each node of a library the number of its call.
  bool matches() {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].is_library) found.push_back(i);
    if (found.size() != libraries_.size()) return false;
    match_same_inputs(found);
    match_in_order(found);
    if (!std::all_of(found.begin(), found.end(),
                     [&](std::size_t i) { return nodes_[i].library != 0; }))
      return false;
    order();
    // A call comes after those that it depends on.
    return std::all_of(found.begin(), found.end(),
                       [&](std::size_t i) { return nodes_[i].after < nodes_[i].library; });
  }

  void add_lines() {
    find_runs();
    for (const Node& node : nodes_) {
      if (node.library != 0) {
        add_node(plan_.kernels[libraries_[node.library - 1]->kernel], node);
      } else if (node.computes) {
        const std::size_t kernel = only_kernel(node);
        if (kernel != kNone && ours_[kernel]) add_node(plan_.kernels[kernel], node);
      }
    }
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;
  // A kernel of the wrapper, and how many calls of libraries there are before it.
  struct Run {
    std::size_t place = 0;
    std::size_t kernel = 0;
  };

  void find_runs() {
    std::size_t place = 0;
    for (const PlannedCall& call : plan_.calls) {
      if (plan_.kernels[call.kernel].language == "extern")
        place += operators_.contains(library_operator(plan_.kernels[call.kernel].name)) ? 1 : 0;
      else
        runs_.push_back({place, call.kernel});
    }
    // One that has nodes by now has them from Inductor.
    for (const PlannedKernel& kernel : plan_.kernels)
      ours_.push_back(kernel.language == "cpp" && kernel.nodes.empty());
  }

  // Inductor calls in another order than the graph's where nothing depends on it, as in most backwards. Which call a
  // node is follows from the graph's inputs that both name; of several with the same inputs the order is kept.
  using Signature = std::pair<std::string, std::set<std::string_view>>;  // operator, inputs
  void match_same_inputs(const std::vector<std::size_t>& found) {
    std::map<Signature, std::pair<std::vector<std::size_t>, std::vector<std::size_t>>> groups;
    for (std::size_t call = 0; call < libraries_.size(); ++call)
      groups[{library_operator(plan_.kernels[libraries_[call]->kernel].name),
              graph_inputs(libraries_[call]->arguments)}]
          .first.push_back(call);
    for (std::size_t node : found)
      groups[{std::string(operator_packet(nodes_[node].of->operation)), used_by(nodes_[node])}]
          .second.push_back(node);
    taken_.assign(libraries_.size(), false);
    for (const auto& [signature, group] : groups) {
      const auto& [calls, nodes] = group;
      if (calls.size() != nodes.size()) continue;
      for (std::size_t i = 0; i < calls.size(); ++i) take(nodes[i], calls[i]);
    }
  }

  // The others: an input that was copied first is not among a call's arguments.
  void match_in_order(const std::vector<std::size_t>& found) {
    std::vector<std::pair<std::size_t, std::set<std::string_view>>> left;  // nodes, what they use
    for (std::size_t node : found)
      if (nodes_[node].library == 0) left.emplace_back(node, used_by(nodes_[node]));
    if (left.size() > kMostInOrder) return;
    for (std::size_t call = 0; call < libraries_.size(); ++call) {
      if (taken_[call]) continue;
      const std::string packet = library_operator(plan_.kernels[libraries_[call]->kernel].name);
      const std::set<std::string_view> named = graph_inputs(libraries_[call]->arguments);
      const auto at = std::find_if(left.begin(), left.end(), [&](const auto& one) {
        const auto& [node, used] = one;
        return operator_packet(nodes_[node].of->operation) == packet &&
               std::includes(used.begin(), used.end(), named.begin(), named.end());
      });
      if (at == left.end()) return;
      take(at->first, call);
      left.erase(at);
    }
  }

  void take(std::size_t node, std::size_t call) {
    nodes_[node].library = call + 1;
    taken_[call] = true;
  }

  // The one kernel that runs while the node can be computed; kNone: there are several.
  std::size_t only_kernel(const Node& node) const {
    auto run =
        std::lower_bound(runs_.begin(), runs_.end(), node.after,
                         [](const Run& one, std::size_t place) { return one.place < place; });
    std::size_t only = kNone;
    for (; run != runs_.end() && run->place < node.before; ++run) {
      if (only != kNone && run->kernel != only) return kNone;
      only = run->kernel;
    }
    return only;
  }

  static void add_once(std::vector<std::string>& to, const std::string& text) {
    if (std::find(to.begin(), to.end(), text) == to.end()) to.push_back(text);
  }

  static void add_node(PlannedKernel& kernel, const Node& node) {
    add_once(kernel.nodes, node.of->name);
    if (!node.of->line.empty()) add_once(kernel.lines, node.of->line);
  }

  void add(const GraphNode& one) {
    Node node;
    node.of = &one;
    const bool is_operator = one.operation.starts_with("torch.ops.");
    node.is_library =
        is_operator && operators_.contains(std::string(operator_packet(one.operation)));
    for (const std::string& name : one.inputs)
      if (auto at = places_.find(name); at != places_.end()) node.inputs.push_back(at->second);
    // A constant (iota, full) is computed wherever it is needed, if at all.
    node.computes = is_operator && !is_view(one) && !node.inputs.empty();
    if (one.operation.empty()) {
      node.roots.insert(one.name);
      inputs_.insert(one.name);
    } else if (!node.computes) {
      node.roots = used_by(node);
    }
    places_[one.name] = nodes_.size();
    nodes_.push_back(std::move(node));
  }

  std::set<std::string_view> used_by(const Node& node) const {
    std::set<std::string_view> used;
    for (std::size_t input : node.inputs)
      for (std::string_view root : nodes_[input].roots)
        if (used.size() < kMostRoots) used.insert(root);
    return used;
  }

  std::set<std::string_view> graph_inputs(std::string_view arguments) const {
    std::set<std::string_view> found;
    while (!arguments.empty()) {
      const std::size_t end = std::min(arguments.find_first_of(" ,()[]=.{}"), arguments.size());
      if (auto at = inputs_.find(arguments.substr(0, end)); at != inputs_.end()) found.insert(*at);
      arguments.remove_prefix(std::min(end + 1, arguments.size()));
    }
    return found;
  }

  void order() {
    for (Node& node : nodes_)
      for (std::size_t input : node.inputs)
        node.after = std::max({node.after, nodes_[input].library, nodes_[input].after});
    for (Node& node : nodes_) node.before = libraries_.size() + 1;
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      const std::size_t needed = nodes_[i].library != 0 ? nodes_[i].library : nodes_[i].before;
      for (std::size_t input : nodes_[i].inputs)
        nodes_[input].before = std::min(nodes_[input].before, needed);
    }
  }

  KernelPlan& plan_;
  std::vector<const PlannedCall*> libraries_;
  std::set<std::string> operators_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string_view, std::size_t> places_;
  std::set<std::string_view> inputs_;  // of the graph
  std::vector<Run> runs_;              // by place
  std::vector<bool> ours_;             // by kernel: its nodes are found here
  std::vector<bool> taken_;            // by call of a library: its node is found
};

}  // namespace

bool is_view(const GraphNode& node) {
  return std::find(std::begin(kViews), std::end(kViews), operator_packet(node.operation)) !=
         std::end(kViews);
}

void add_cpp_lines(KernelPlan& plan, const std::vector<GraphNode>& post_grad) {
  Matching matching(plan, post_grad);
  if (matching.matches()) matching.add_lines();
}

}  // namespace dynprof
