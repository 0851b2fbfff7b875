#include "user/generated/fx_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "symbolizer/base/text.h"
#include "user/generated/fx_callable.h"
#include "user/generated/fx_value.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxNodes = 4096;
constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxStackTrace = 65'536;  // characters
constexpr std::size_t kMaxModules = 256;        // inside each other

struct Node {
  std::uint64_t address = 0;
  std::string name, operation;
};

class Printer {
 public:
  Printer(PythonObjects& python, FxNodesLimits& limits, LookDeadline deadline)
      : python_(python), values_(python, limits.values), limits_(limits), deadline_(deadline) {}

  std::optional<FxNodesText> print(std::uint64_t graph_module) {
    auto graph = python_.values().attribute(graph_module, "_graph");
    auto root = graph ? python_.values().attribute(*graph, "_root") : std::nullopt;
    if (!root || !collect(*root)) return std::nullopt;
    std::string inputs = "self";
    for (const Node& node : nodes_) {
      if (node.operation == "placeholder") inputs += ", " + input(node);
    }
    found_.code = fmt::format("def forward({}):\n", inputs);
    for (const Node& node : nodes_) {
      if (over(deadline_) || limits_.values == 0 || found_.code.size() > limits_.bytes) {
        found_.truncated = true;
        break;
      }
      append(node);
    }
    return std::move(found_);
  }

 private:
  std::optional<std::uint64_t> attribute(const Node& node, std::string_view name) {
    return values_.nodes().attribute(node.address, name);
  }
  std::string text(std::optional<std::uint64_t> object) {
    return object ? escape_terminal(python_.values().read_str(*object, kMaxName).value_or("")) : "";
  }

  // The nodes are a ring that the root is a part of.
  bool collect(std::uint64_t root) {
    std::uint64_t at = root;
    std::unordered_set<std::uint64_t> seen;
    while (nodes_.size() < kMaxNodes && !over(deadline_)) {
      auto next = values_.nodes().attribute(at, "_next");
      if (!next) return false;
      at = *next;
      if (at == root) return true;
      if (!seen.insert(at).second) return false;
      Node node{at, "", ""};
      node.name = text(attribute(node, "name"));
      node.operation = text(attribute(node, "op"));
      if (node.name.empty() || node.operation.empty()) return false;
      nodes_.push_back(std::move(node));
    }
    found_.truncated = true;
    return true;
  }

  std::string input(const Node& node) {
    std::string target = text(attribute(node, "target"));
    return annotated(target, meta_of(node).shape);
  }

  struct Meta {
    std::string shape;  // "f32[2, 4][4, 1]"
    std::string place;  // "/tmp/model.py:9 in forward, code: x = self.linear(x)"
    std::string module;
    std::optional<std::int64_t> sequence;
  };

  Meta meta_of(const Node& node) {
    Meta meta;
    auto dict = attribute(node, "meta");
    if (!dict) return meta;
    auto get = [&](std::string_view name) { return python_.objects().dict_get(*dict, name); };
    if (auto tensor = get("tensor_meta")) meta.shape = values_.tensor_type(*tensor);
    if (auto number = get("seq_nr")) meta.sequence = python_.values().read_int(*number);
    if (auto trace = get("stack_trace")) {
      meta.place = place_of(python_.values().read_str(*trace, kMaxStackTrace).value_or(""));
    }
    for (std::string_view name : {"nn_module_stack", "fwd_nn_module_stack"}) {
      auto stack = meta.module.empty() ? get(name) : std::nullopt;
      auto modules = stack ? python_.values().dict_items(*stack, kMaxModules) : std::nullopt;
      if (!modules || modules->empty()) continue;
      auto parts = python_.values().tuple_items(modules->back().value, 2);  // source, class
      if (parts && !parts->empty()) meta.module = text(parts->front());
    }
    // A module of torch.nn alone has no line of user code.
    if (!meta.shape.empty() || meta.sequence || !meta.place.empty() || !meta.module.empty())
      found_.has_meta = true;
    return meta;
  }

  // The innermost call of a traceback:  File "/tmp/model.py", line 9, in forward\n    x = self.linear(x)
  static std::string place_of(std::string_view trace) {
    constexpr std::string_view kFile = "File \"";
    constexpr std::string_view kLine = "\", line ";
    constexpr std::string_view kIn = ", in ";
    const std::size_t file = trace.rfind(kFile);
    if (file == std::string_view::npos) return "";
    trace.remove_prefix(file + kFile.size());
    const std::size_t line = trace.find(kLine);
    const std::size_t function = trace.find(kIn, line);
    if (line == std::string_view::npos || function == std::string_view::npos) return "";
    const std::size_t end = std::min(trace.find('\n', function), trace.size());
    const std::size_t number = line + kLine.size();
    const std::size_t name = function + kIn.size();
    if (name > end) return "";
    std::string_view code = trace.substr(std::min(end + 1, trace.size()));
    code = code.substr(0, code.find('\n'));
    code.remove_prefix(std::min(code.find_first_not_of(' '), code.size()));
    return escape_terminal(fmt::format("{}:{} in {}, code: {}", trace.substr(0, line),
                                       trace.substr(number, function - number),
                                       trace.substr(name, end - name), code));
  }

  static std::string annotated(const std::string& name, const std::string& shape) {
    return shape.empty() ? name : fmt::format("{}: \"{}\"", name, shape);
  }

  void append(const Node& node) {
    const Meta meta = meta_of(node);
    const std::string line = statement(node, meta.shape);
    if (line.empty()) return;
    if (node.operation != "placeholder" && node.operation != "output") append_place(meta);
    found_.code += "    " + line;
    if (meta.sequence) found_.code += fmt::format("  # seq_nr {}", *meta.sequence);
    found_.code += "\n";
  }

  void append_place(const Meta& meta) {
    if (meta.place == place_ && meta.module == module_) return;
    place_ = meta.place;
    module_ = meta.module;
    found_.code += "\n";
    if (!module_.empty()) found_.code += fmt::format("    # Module: {}\n", module_);
    found_.code +=
        place_.empty() ? "    # No stack trace\n" : fmt::format("    # File: {}\n", place_);
  }

  // One line of code; "" for an input that has its own name.
  std::string statement(const Node& node, const std::string& shape) {
    const std::string result = annotated(node.name, shape);
    auto target = attribute(node, "target");
    if (node.operation == "call_function") return call(node, result, target);
    const Arguments arguments = arguments_of(node);
    if (node.operation == "output") {
      return "return " + (arguments.positional.empty() ? "None" : arguments.positional.front());
    }
    const std::string name = text(target);
    if (name.empty()) return fmt::format("{} = <unreadable>", result);
    if (node.operation == "placeholder") {
      return name == node.name ? "" : fmt::format("{} = {}", node.name, name);
    }
    if (node.operation == "get_attr") return fmt::format("{} = self.{}", result, name);
    if (node.operation == "call_module")
      return fmt::format("{} = self.{}({})", result, name, arguments.all(0));
    if (node.operation != "call_method" || arguments.positional.empty())
      return fmt::format("{} = <{}>", result, node.operation);
    return fmt::format("{} = {}.{}({})", result, arguments.positional.front(), name,
                       arguments.all(1));
  }

  struct Arguments {
    std::vector<std::string> positional;
    std::vector<std::string> named;  // "dim = 1"

    std::string all(std::size_t from) const {
      std::string text;
      for (std::size_t i = from; i < positional.size(); ++i)
        text += (text.empty() ? "" : ", ") + positional[i];
      for (const std::string& one : named) text += (text.empty() ? "" : ", ") + one;
      return text;
    }
  };

  Arguments arguments_of(const Node& node) {
    Arguments arguments;
    auto positional = attribute(node, "_args");
    auto items =
        positional ? python_.values().tuple_items(*positional, FxValues::kMaxItems) : std::nullopt;
    if (!items) arguments.positional.push_back("<unreadable>");
    for (std::uint64_t item : items.value_or(std::vector<std::uint64_t>()))
      arguments.positional.push_back(values_.text(item));
    auto named = attribute(node, "_kwargs");
    auto entries = named ? python_.values().dict_items(*named, FxValues::kMaxItems) : std::nullopt;
    if (!entries) arguments.named.push_back("<unreadable>");
    for (const DictEntry& entry : entries.value_or(std::vector<DictEntry>()))
      arguments.named.push_back(fmt::format("{} = {}", text(entry.key), values_.text(entry.value)));
    return arguments;
  }

  std::string call(const Node& node, const std::string& result,
                   std::optional<std::uint64_t> target) {
    const Arguments arguments = arguments_of(node);
    const std::string function = target ? callable_name(python_, *target) : "<unreadable>";
    const std::vector<std::string>& values = arguments.positional;
    const OperatorForm* form = arguments.named.empty() ? operator_form(function) : nullptr;
    if (form != nullptr && values.size() == form->operands()) {
      const std::string first = values.front();
      const std::string second = values.size() > 1 ? values[1] : "";
      const std::string text = fmt::format(fmt::runtime(form->form), first, second);
      return form->in_place ? fmt::format("{};  {} = {}", text, result, first)
                            : fmt::format("{} = {}", result, text);
    }
    // As torch writes an attribute: y.T
    if (function == "getattr" && values.size() == 2 && values[1].size() > 2 && values[1][0] == '\'')
      return fmt::format("{} = {}.{}", result, values[0],
                         values[1].substr(1, values[1].size() - 2));
    return fmt::format("{} = {}({})", result, function, arguments.all(0));
  }

  PythonObjects& python_;
  FxValues values_;
  const FxNodesLimits& limits_;
  LookDeadline deadline_;
  std::vector<Node> nodes_;
  FxNodesText found_;
  std::string place_, module_;  // that were written last
};

}  // namespace

std::optional<FxNodesText> read_fx_nodes(PythonObjects& python, std::uint64_t graph_module,
                                         FxNodesLimits& limits, LookDeadline deadline) {
  return Printer(python, limits, deadline).print(graph_module);
}

}  // namespace dynprof
