#include "user/generated/fx_sources.h"

#include <fmt/format.h>

namespace dynprof {
namespace {

constexpr std::size_t kMaxSources = 1 << 18;
constexpr std::size_t kMaxKey = 4096;
constexpr std::string_view kEvalKey = "<eval_with_key>";

GeneratedDirection direction_of(const FoundObject& module, const CompiledGraph& graph) {
  if (module.captured) return GeneratedDirection::kNone;  // forward and backward come from it
  if (module.direction == GeneratedDirection::kNone && !graph.reachable.has_backward) {
    return GeneratedDirection::kInference;
  }
  return module.direction;
}

}  // namespace

FxSources::FxSources(PythonObjects& python, Collector& collector)
    : python_(python), collector_(collector) {
  auto loader = python.global("torch.fx.graph_module", "_loader");
  auto cache = loader ? python.attribute(*loader, {"eval_cache"}) : std::nullopt;
  auto items = cache ? python.values().dict_items(*cache, kMaxSources) : std::nullopt;
  if (!items) return;
  std::vector<std::uint64_t> keys;
  for (const DictEntry& item : *items) keys.push_back(item.key);
  std::vector<RemoteValue> names = python.values().values(keys, kMaxKey);
  for (std::size_t i = 0; i < items->size(); ++i) {
    if (names[i].kind != RemoteValue::Kind::kStr) continue;
    texts_.emplace((*items)[i].value, sources_.size());
    sources_.push_back({std::move(names[i].text), (*items)[i].value, false});
  }
}

// The file name of the forward function of the module's own class: under which a frame of it shows.
std::string FxSources::forward_key(std::uint64_t module) {
  auto type = python_.objects().type_of(module);
  auto forward = type ? python_.objects().type_get(*type, "forward") : std::nullopt;
  auto code = forward ? python_.function_code(*forward) : std::nullopt;
  std::string file = code ? python_.codes().read(*code).filename : "";
  return file.starts_with(kEvalKey) ? file : "";
}

void FxSources::add_graph(const CompiledGraph& graph) {
  for (const FoundObject& module : graph.reachable.graph_modules) add_module(module, graph);
  for (const FoundText& text : graph.reachable.texts) add_text(text, graph);
}

void FxSources::add_module(const FoundObject& module, const CompiledGraph& graph) {
  GeneratedFile file;
  file.trace_id = graph.trace_id;
  file.direction = direction_of(module, graph);
  auto code = python_.values().attribute(module.address, "_code");
  const bool has_code = code && python_.values().type_name(*code) == "str";
  graphs_.push_back({module.address, graph.trace_id, file.direction, module.captured, has_code});
  if (!has_code) return;
  // The same str object is in both places: equal text would not be enough, as graphs recur.
  if (auto source = texts_.find(*code); source != texts_.end()) {
    if (sources_[source->second].added) return;
    sources_[source->second].added = true;
    file.origin = sources_[source->second].key;
  } else {
    file.origin = forward_key(module.address);
    if (file.origin.empty()) file.origin = "GraphModule._code";
  }
  add(*code, module.address, std::move(file), module.captured ? "captured_graph" : "graph");
}

void FxSources::add_text(const FoundText& text, const CompiledGraph& graph) {
  GeneratedFile file;
  file.trace_id = graph.trace_id;
  file.origin = text.name;
  bool joint = text.name.find("joint") != std::string::npos;
  bool backward = text.name.find("bw_") == 0 || text.name.find("backward") != std::string::npos;
  if (!joint) {
    file.direction = backward                       ? GeneratedDirection::kBackward
                     : graph.reachable.has_backward ? GeneratedDirection::kForward
                                                    : GeneratedDirection::kInference;
  }
  add(text.text, text.text, std::move(file), joint ? "joint_graph" : "aot_graph");
}

void FxSources::add(std::uint64_t text, std::uint64_t owner, GeneratedFile file,
                    std::string_view hint) {
  if (!collector_.place()) return;
  auto content = python_.text(text, collector_.room());
  // The memory of a freed owner may still point to its former text, and belong to another object now.
  if (!content || content->text.empty() || !python_.alive(owner)) return;
  file.kind = GeneratedKind::kFxGraph;
  file.content = std::move(content->text);
  file.truncated = content->truncated;
  std::string name = directed_name(file.direction, hint);
  collector_.add(std::move(file), name, ".py");
}

void FxSources::add_others() {
  for (auto source = sources_.rbegin(); source != sources_.rend(); ++source) {
    if (source->added) continue;
    GeneratedFile file;
    file.origin = source->key;
    // "<eval_with_key>.3 from proxy_tensor.py:1738 in wrapped" -> "eval_with_key_.3"
    std::string_view name = std::string_view(source->key).substr(0, source->key.find(' '));
    if (name.starts_with('<')) name.remove_prefix(1);
    add(source->text, source->text, std::move(file), name);
  }
}

}  // namespace dynprof
