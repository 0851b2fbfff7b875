// Graphs as Python code: what torch.fx made of a graph module (`_code`), everything it ever compiled
// (`<eval_with_key>.N`, in torch.fx.graph_module._loader.eval_cache), and the texts AOTAutograd keeps
// of its joint, forward and backward graph; and the nodes of graph modules that are alive (fx_nodes.h).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "user/generated/collector.h"
#include "user/generated/compiled_codes.h"
#include "user/generated/deadline.h"
#include "user/generated/fx_nodes.h"
#include "user/generated/python_objects.h"

namespace dynprof {

class FxSources {
 public:
  FxSources(PythonObjects& python, Collector& collector, LookDeadline deadline);

  void add_graph(const CompiledGraph& graph);
  // The graphs that were added once more, from their nodes, with what the code that torch made of them leaves out; of
  // those that it made no code of the only file. After everything else that may be freed meanwhile.
  void add_nodes();
  // Sources that no graph above led to: of an unknown compile. The newest first.
  void add_others();

 private:
  struct Source {
    std::string key;  // "<eval_with_key>.3"
    std::uint64_t text = 0;
    bool added = false;
  };
  struct Nodes {
    std::uint64_t module = 0;
    GeneratedFile file;  // without content
    std::string hint;
    bool captured = false;
    bool has_code = false;
  };
  void add_nodes(Nodes& nodes);
  void add_module(const FoundObject& module, const CompiledGraph& graph);
  void add_text(const FoundText& text, const CompiledGraph& graph);
  void add(std::uint64_t text, std::uint64_t owner, GeneratedFile file, std::string_view hint);
  std::string forward_key(std::uint64_t module);

  PythonObjects& python_;
  Collector& collector_;
  LookDeadline deadline_;
  std::vector<Source> sources_;                           // in torch's order
  std::unordered_map<std::uint64_t, std::size_t> texts_;  // str object -> source
  std::vector<Nodes> nodes_;
  FxNodesLimits limits_;
  std::size_t without_nodes_ = 0;  // graphs whose nodes the limit left out
  std::size_t without_code_ = 0;   // captured graphs of which the nodes could not be read either
};

}  // namespace dynprof
