// The files of graph modules that are alive, made from their nodes (fx_nodes.h): the only file of a graph that torch made
// no code of, and a second one, with what the code leaves out, of the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "user/generated/deadline.h"
#include "user/generated/generated_file.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

struct LiveGraph {
  std::uint64_t module = 0;  // a GraphModule
  std::string trace_id;
  GeneratedDirection direction = GeneratedDirection::kNone;
  bool captured = false;
  bool has_code = false;
  bool operator==(const LiveGraph&) const = default;
};

// Adds them to `code`, which two looks agree on, as they do on `graphs`. Each graph is read twice as well, and a file is
// made where both readings are equal and the graph module still lives.
void add_graph_nodes(RemoteObjects& objects, const PythonRuntime& runtime,
                     const std::vector<LiveGraph>& graphs, const GeneratedLimits& limits,
                     LookDeadline deadline, GeneratedCode& code);

}  // namespace dynprof
