// A live graph of torch.fx as text, from its nodes in the target's memory, in the form that torch itself prints
// (Graph.python_code, verbose). For graphs that torch made no code of, and for what the code leaves out and the nodes'
// `meta` holds: shapes and strides, the user's line, the nn.Module, and autograd's sequence number, which a node of
// the backward shares with the forward's node it is the derivative of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "user/generated/deadline.h"
#include "user/generated/python_objects.h"

namespace dynprof {

struct FxNodesText {
  std::string code;
  bool truncated = false;  // there were more nodes, or a limit was reached
  bool has_meta = false;   // shapes, user's lines or sequence numbers are in it
};

struct FxNodesLimits {
  std::size_t bytes = 0;   // of one graph's text
  std::size_t values = 0;  // arguments to be read, of all graphs: counted down
};

// Nothing where the graph module holds no graph, or its list of nodes could not be followed to its end.
std::optional<FxNodesText> read_fx_nodes(PythonObjects& python, std::uint64_t graph_module,
                                         FxNodesLimits& limits, LookDeadline deadline);

}  // namespace dynprof
