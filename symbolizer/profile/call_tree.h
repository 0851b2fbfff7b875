// The recording's stacks with frames replaced by labels (functions, lines of text): stacks that
// differ only within a label become one. Built in one pass, so what is summed over it costs its
// nodes, not samples times depth.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "symbolizer/recording/model.h"

namespace dynprof {

using Label = std::uint32_t;
using NodeId = std::uint32_t;
// The label of frames that no node stands for: what they called is called by their caller.
inline constexpr Label kLeftOut = std::numeric_limits<Label>::max();

class CallTree {
 public:
  struct Node {
    NodeId parent = 0;
    Label label = 0;
    // No node towards the root has the same label, or the same label and caller's label: what is
    // summed over such nodes counts each function, or call edge, once per stack.
    bool first_of_label = true;
    bool first_of_edge = true;
    std::uint32_t edge = 0;  // same for the same pair of labels; 0: a root has no caller
  };

  struct Edge {
    Label caller = 0;
    Label label = 0;
  };

  // `labels` by FrameId. Stacks at which `restarts` is true become roots: what called them is cut.
  CallTree(const Tables& tables, std::span<const Label> labels,
           const std::function<bool(StackId)>& restarts = {});

  // Node 0 is the empty stack. Parents come before their children.
  std::span<const Node> nodes() const { return nodes_; }
  NodeId of(StackId stack) const { return of_stacks_[stack]; }
  std::uint32_t label_count() const { return label_count_; }
  // By Node::edge.
  std::span<const Edge> edges() const { return edges_; }

 private:
  void number_edges();
  void mark_repeats();

  std::vector<Node> nodes_;
  std::vector<NodeId> of_stacks_;
  std::uint32_t label_count_ = 0;
  std::vector<Edge> edges_{Edge{}};
};

}  // namespace dynprof
