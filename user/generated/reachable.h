// From a compiled graph's function, `__compiled_fn_N`, to everything it refers to: the graph modules,
// Inductor's CompiledFxGraphs and the graphs AOTAutograd kept as text. A breadth-first walk over
// closures, bound methods, partials, small containers and instances, bounded in objects and depth.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "user/generated/generated_file.h"
#include "user/generated/python_objects.h"

namespace dynprof {

struct FoundObject {
  std::uint64_t address = 0;
  // As the way there says (`compiled_fw`, `bw_module`, ...).
  GeneratedDirection direction = GeneratedDirection::kNone;
  bool captured = false;  // of a graph module: Dynamo's, with a CompileId in its meta
};

struct FoundText {
  std::uint64_t text = 0;  // a str object
  std::string name;        // "joint_graph_str"
};

struct Reachable {
  std::vector<FoundObject> graph_modules;
  std::vector<FoundObject> compiled_graphs;  // Inductor's CompiledFxGraph
  std::vector<FoundText> texts;
  // As graph modules' `dynamo_compile_id` and AOTAutograd's `compile_id_str` say: one, or the walk
  // left what belongs to this compile and no id is certain.
  std::set<std::string> trace_ids;
  bool has_backward = false;  // AOTAutograd made an autograd function of it
  bool complete = true;       // no bound was hit
};

Reachable find_reachable(PythonObjects& python, std::uint64_t compiled_fn, LookDeadline deadline);

}  // namespace dynprof
