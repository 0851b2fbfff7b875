// A call graph that fits a screen: the functions and calls with most time, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/profile/dynamo_profile.h"
#include "symbolizer/profile/functions.h"
#include "symbolizer/profile/profile.h"

namespace dynprof {

// Names are the target's, unescaped; they point into what the graph was made from.
struct CallGraphNode {
  std::string_view name;
  std::string_view file;  // "": none
  std::int32_t line = 0;  // 0: none
  std::uint64_t ns = 0;   // with what it called
  std::uint64_t own_ns = 0;
};

struct CallGraphEdge {
  std::uint32_t caller = 0, callee = 0;  // index of CallGraph::nodes
  std::uint64_t ns = 0;
  // Functions between the two that only passed the call on, outermost first.
  std::vector<std::string_view> through;
};

struct CallGraph {
  std::vector<CallGraphNode> nodes;
  std::vector<CallGraphEdge> edges;
  std::uint64_t ns = 0;      // of everything: what shares are of
  std::size_t left_out = 0;  // functions that were pruned for their time or number
};

CallGraph call_graph_of(const Profile& profile, const Functions& functions);
CallGraph call_graph_of(const DynamoProfile& profile);

struct PruneLimits {
  double node_percent = 0.5;
  double edge_percent = 0.1;
  std::size_t nodes = 80;
  std::size_t edges = 160;
};

// Without functions and calls of less time than the limits. A function without time of its own that has
// one caller and one callee becomes part of the edge between these two. Of what is left, those with most
// time.
CallGraph prune(const CallGraph& graph, const PruneLimits& limits = {});

// The graph in Graphviz' DOT language, UTF-8, with every name escaped and cut.
std::string dot_text(const CallGraph& graph, std::string_view title);

}  // namespace dynprof
