// Graphs as Python code: what torch.fx made of a graph module (`_code`), everything it ever compiled
// (`<eval_with_key>.N`, in torch.fx.graph_module._loader.eval_cache), and the texts AOTAutograd keeps
// of its joint, forward and backward graph.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "user/generated/collector.h"
#include "user/generated/compiled_codes.h"
#include "user/generated/graph_node_files.h"
#include "user/generated/python_objects.h"

namespace dynprof {

class FxSources {
 public:
  FxSources(PythonObjects& python, Collector& collector);

  void add_graph(const CompiledGraph& graph);
  // Sources that no graph above led to: of an unknown compile. The newest first.
  void add_others();
  // The graph modules that were added, for graph_node_files.h.
  std::vector<LiveGraph> take_graphs() { return std::move(graphs_); }

 private:
  struct Source {
    std::string key;  // "<eval_with_key>.3"
    std::uint64_t text = 0;
    bool added = false;
  };
  void add_module(const FoundObject& module, const CompiledGraph& graph);
  void add_text(const FoundText& text, const CompiledGraph& graph);
  void add(std::uint64_t text, std::uint64_t owner, GeneratedFile file, std::string_view hint);
  std::string forward_key(std::uint64_t module);

  PythonObjects& python_;
  Collector& collector_;
  std::vector<Source> sources_;                           // in torch's order
  std::unordered_map<std::uint64_t, std::size_t> texts_;  // str object -> source
  std::vector<LiveGraph> graphs_;
};

}  // namespace dynprof
