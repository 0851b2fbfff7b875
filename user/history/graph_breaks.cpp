#include "user/history/graph_breaks.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "symbolizer/base/text.h"
#include "symbolizer/recording/torch_model.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxText = 65'536;
constexpr std::size_t kMaxFields = 256;
constexpr std::size_t kMaxStack = kMaxBreakCalls;
constexpr std::size_t kMaxList = 1 << 20;

std::uint64_t value_of(const std::vector<NamedValue>& named, std::string_view name) {
  for (const NamedValue& value : named) {
    if (value.name == name) return value.value;
  }
  return 0;
}

}  // namespace

std::uint64_t graph_break_list(RemoteObjects& objects, const PythonRuntime& runtime) {
  auto utils = objects.find_module(runtime.main_interpreter, "torch._dynamo.utils");
  auto list = utils ? objects.module_get(*utils, "graph_break_reasons") : std::nullopt;
  return list.value_or(0);
}

std::optional<HistoryBreak> read_graph_break(RemoteValues& values, std::uint64_t object) {
  if (!values.is_a(object, "GraphCompileReason")) return std::nullopt;
  auto named = values.attributes(object, kMaxFields);
  if (!named) return std::nullopt;
  auto reason = values.read_str(value_of(*named, "reason"), kMaxText);
  if (!reason) return std::nullopt;
  HistoryBreak found;
  found.reason = std::move(*reason);
  auto frames = values.list_items(value_of(*named, "user_stack"), kMaxStack);
  for (std::uint64_t frame : frames.value_or(std::vector<std::uint64_t>())) {
    auto parts = values.attributes(frame, kMaxFields);  // slots of a FrameSummary
    if (!parts) return std::nullopt;
    auto file = values.read_str(value_of(*parts, "filename"), kMaxText);
    auto line = values.read_int(value_of(*parts, "lineno"));
    auto function = values.read_str(value_of(*parts, "name"), kMaxText);
    if (!file || !line || !function) return std::nullopt;
    found.stack.push_back({std::move(*file), *line, std::move(*function)});
  }
  return found;
}

std::optional<HistoryBreak> read_graph_break_at(RemoteValues& values, std::uint64_t list,
                                                std::size_t index) {
  auto items = values.list_items(list, kMaxList);
  if (!items || index >= items->size()) return std::nullopt;
  return read_graph_break(values, (*items)[index]);
}

Json graph_break_json(const HistoryBreak& cause) {
  Json stack = Json::array();
  for (const UserFrame& frame : cause.stack) {
    stack.push_back({{"file", valid_utf8(frame.file)},
                     {"line", frame.line},
                     {"function", valid_utf8(frame.function)}});
  }
  Json object{{"reason", valid_utf8(cause.reason)}, {"file", nullptr}, {"line", nullptr}};
  if (!cause.stack.empty()) {
    object["file"] = valid_utf8(cause.stack.back().file);
    object["line"] = cause.stack.back().line;
  }
  object["stack"] = std::move(stack);
  return object;
}

}  // namespace dynprof
