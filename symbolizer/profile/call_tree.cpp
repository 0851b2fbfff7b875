#include "symbolizer/profile/call_tree.h"

#include <algorithm>

#include "symbolizer/base/hash.h"
#include "symbolizer/base/interner.h"

namespace dynprof {
namespace {

std::uint64_t pair_key(std::uint32_t a, std::uint32_t b) {
  return (static_cast<std::uint64_t>(a) << 32) | b;
}

}  // namespace

CallTree::CallTree(const Tables& tables, std::span<const Label> labels,
                   const std::function<bool(StackId)>& restarts) {
  nodes_.push_back(Node{});
  of_stacks_.assign(tables.stacks.size(), 0);
  IndexTable index;
  auto key = [this](std::uint32_t id) {
    return hash_u64(pair_key(nodes_[id].parent, nodes_[id].label));
  };
  for (StackId id = 1; id < tables.stacks.size(); ++id) {
    const StackNode& stack = tables.stacks[id];
    // A caller is always written before its callee; anything else is damage, taken as the root.
    bool root = stack.caller >= id || (restarts && restarts(id));
    NodeId parent = root ? 0 : of_stacks_[stack.caller];
    Label label = labels[stack.frame];
    if (label == kLeftOut) {
      of_stacks_[id] = parent;
      continue;
    }
    label_count_ = std::max(label_count_, label + 1);
    std::uint64_t hash = hash_u64(pair_key(parent, label));
    std::uint32_t node = index.find(hash, [&](std::uint32_t other) {
      return nodes_[other].parent == parent && nodes_[other].label == label;
    });
    if (node == IndexTable::kNone) {
      node = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back(Node{.parent = parent, .label = label});
      index.add(hash, node, key);
    }
    of_stacks_[id] = node;
  }
  number_edges();
  mark_repeats();
}

void CallTree::number_edges() {
  IndexTable index;
  auto pair_of = [this](std::uint32_t edge) {
    return pair_key(edges_[edge].caller, edges_[edge].label);
  };
  for (NodeId id = 1; id < nodes_.size(); ++id) {
    Node& node = nodes_[id];
    if (node.parent == 0) continue;
    Edge edge{nodes_[node.parent].label, node.label};
    std::uint64_t pair = pair_key(edge.caller, edge.label);
    std::uint64_t hash = hash_u64(pair);
    node.edge = index.find(hash, [&](std::uint32_t other) { return pair_of(other) == pair; });
    if (node.edge != IndexTable::kNone) continue;
    node.edge = static_cast<std::uint32_t>(edges_.size());
    edges_.push_back(edge);
    index.add(hash, node.edge, [&](std::uint32_t other) { return hash_u64(pair_of(other)); });
  }
}

// Depth first over the tree with one counter per label and per edge of those on the path.
void CallTree::mark_repeats() {
  std::vector<NodeId> first_child(nodes_.size(), 0), sibling(nodes_.size(), 0);
  for (NodeId id = 1; id < nodes_.size(); ++id) {
    sibling[id] = first_child[nodes_[id].parent];
    first_child[nodes_[id].parent] = id;
  }
  std::vector<std::uint32_t> label_depth(label_count_, 0), edge_depth(edges_.size(), 0);
  auto enter = [&](NodeId id) {
    Node& node = nodes_[id];
    node.first_of_label = label_depth[node.label]++ == 0;
    node.first_of_edge = edge_depth[node.edge]++ == 0;
  };
  auto leave = [&](NodeId id) {
    --label_depth[nodes_[id].label];
    --edge_depth[nodes_[id].edge];
  };
  NodeId at = first_child[0];
  if (at != 0) enter(at);
  while (at != 0) {
    if (first_child[at] != 0) {
      at = first_child[at];
      enter(at);
      continue;
    }
    while (at != 0 && sibling[at] == 0) {
      leave(at);
      at = nodes_[at].parent;
    }
    if (at == 0) break;
    leave(at);
    at = sibling[at];
    enter(at);
  }
}

}  // namespace dynprof
