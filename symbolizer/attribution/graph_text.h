// The nodes of a graph from the code that torch, or user/generated/fx_nodes.h, printed of it: what each computes, its
// type, shape and strides where they are there, and the user's line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dynprof {

struct GraphNode {
  std::string name;        // "add_1", an input too
  std::string operation;   // "torch.ops.aten.add.Tensor"; "": an input
  std::string annotation;  // "f32[2, 4][4, 1]cpu", whole
  std::string dtype, shape, strides, device;
  std::vector<std::string> inputs;  // names in its arguments: those of nodes, and others
  std::string line;                 // "/tmp/model.py:12 in forward"
  std::string code;                 // "x = self.linear(x)"
  // Where the text was made from live nodes (user/generated/fx_nodes.h), else empty:
  std::string module;    // "L['self'].linear"
  std::string sequence;  // autograd's sequence number
};

// At most `most`; of any other text whatever looks like a node.
std::vector<GraphNode> read_graph(std::string_view text, std::size_t most);

}  // namespace dynprof
