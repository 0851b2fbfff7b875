// `torch._dynamo.utils.graph_break_reasons`: one entry per graph break since the last
// torch._dynamo.reset(), for all compiles together. torch 2.6 to 2.14.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "user/history/compile_history.h"
#include "user/target/remote_values.h"

namespace dynprof {

// Address of the list; 0: Dynamo is not imported.
std::uint64_t graph_break_list(RemoteObjects& objects, const PythonRuntime& runtime);
// One entry of it, a GraphCompileReason; nullopt: it is none, or torn.
std::optional<HistoryBreak> read_graph_break(RemoteValues& values, std::uint64_t object);
std::optional<HistoryBreak> read_graph_break_at(RemoteValues& values, std::uint64_t list,
                                                std::size_t index);
// {"reason", "file", "line", "stack":[{"file", "line", "function"}, ...]}: the user's line that broke,
// and the calls that lead to it, outermost first.
nlohmann::ordered_json graph_break_json(const HistoryBreak& cause);

}  // namespace dynprof
