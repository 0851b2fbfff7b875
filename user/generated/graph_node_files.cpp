#include "user/generated/graph_node_files.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "user/generated/collector.h"
#include "user/generated/fx_nodes.h"
#include "user/generated/python_objects.h"
#include "user/target/snapshot_memory.h"

namespace dynprof {
namespace {

// Arguments of nodes of all graphs, about 1 us each.
constexpr std::size_t kMaxValues = 100'000;

// All graphs from one copy of the target's pages.
std::vector<std::optional<FxNodesText>> read_all(RemoteObjects& objects,
                                                 const PythonRuntime& runtime,
                                                 const std::vector<LiveGraph>& graphs,
                                                 std::size_t max_bytes, LookDeadline deadline) {
  SnapshotMemory pages(objects.memory());
  RemoteObjects held(pages, objects.layout());
  held.set_str_type(objects.str_type());
  PythonObjects python(held, runtime);
  FxNodesLimits limits{max_bytes, kMaxValues};
  std::vector<std::optional<FxNodesText>> texts;
  for (const LiveGraph& graph : graphs) {
    if (limits.values == 0 || over(deadline)) break;
    texts.push_back(read_fx_nodes(python, graph.module, limits, deadline));
  }
  return texts;
}

// Not from the copy.
bool alive(RemoteObjects& objects, const PythonRuntime& runtime, std::uint64_t module) {
  return PythonObjects(objects, runtime).alive(module);
}

}  // namespace

void add_graph_nodes(RemoteObjects& objects, const PythonRuntime& runtime,
                     const std::vector<LiveGraph>& graphs, const GeneratedLimits& limits,
                     LookDeadline deadline, GeneratedCode& code) {
  if (graphs.empty()) return;
  const auto first = read_all(objects, runtime, graphs, limits.file_bytes, deadline);
  const auto second = read_all(objects, runtime, graphs, limits.file_bytes, deadline);
  Collector collector(limits, std::move(code));
  std::size_t left_out = 0, unreadable = 0;
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    const LiveGraph& graph = graphs[i];
    if (i >= first.size() || i >= second.size()) {
      ++left_out;
      continue;
    }
    if (!collector.place()) break;  // which take() reports
    const bool read = first[i] && second[i] && first[i]->code == second[i]->code &&
                      alive(objects, runtime, graph.module);
    if (!read && graph.captured && !graph.has_code) ++unreadable;
    if (!read || (graph.has_code && !second[i]->has_meta)) continue;
    GeneratedFile file;
    file.trace_id = graph.trace_id;
    file.kind = GeneratedKind::kFxGraph;
    file.direction = graph.direction;
    file.origin = "GraphModule._graph";
    file.content = second[i]->code;
    file.truncated = second[i]->truncated;
    const std::string name =
        directed_name(graph.direction, graph.captured ? "captured_graph" : "graph");
    collector.add(std::move(file), graph.has_code ? name + "_nodes" : name, ".py");
  }
  if (left_out != 0) {
    collector.missing(fmt::format("the nodes of {} graphs: more than {} arguments, or no time",
                                  left_out, kMaxValues));
  }
  if (unreadable != 0) {
    collector.missing(
        fmt::format("the captured graphs of {} compiles: torch made no code of them, and their "
                    "nodes cannot be read",
                    unreadable));
  }
  code = collector.take();
}

}  // namespace dynprof
