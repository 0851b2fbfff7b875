#include "user/generated/reachable.h"

#include <algorithm>
#include <array>
#include <deque>
#include <unordered_set>

#include "user/generated/names.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxObjects = 4096;
constexpr int kMaxDepth = 14;  // torch 2.13 with Inductor and a backward needs 9
constexpr std::size_t kMaxItems = 48;

// Big and of no use here: what shapes, tensors and tracing are made of, and torch's own tables.
constexpr std::array<std::string_view, 30> kNotEntered = {"str",
                                                          "int",
                                                          "float",
                                                          "bool",
                                                          "NoneType",
                                                          "bytes",
                                                          "module",
                                                          "type",
                                                          "code",
                                                          "torch.device",
                                                          "torch.dtype",
                                                          "Tensor",
                                                          "Parameter",
                                                          "FakeTensor",
                                                          "FakeTensorMode",
                                                          "ShapeEnv",
                                                          "SymNode",
                                                          "SymInt",
                                                          "Graph",
                                                          "Node",
                                                          "OpOverload",
                                                          "OutputGraph",
                                                          "TracingContext",
                                                          "GuardsContext",
                                                          "torch._C._TensorMeta",
                                                          "OpOverloadPacket",
                                                          "CompileId",
                                                          "CompileContext",
                                                          "Lock",
                                                          "AOTConfig"};

constexpr std::array<std::string_view, 3> kForwardNames = {"compiled_fw", "compiled_fw_func",
                                                           "fw_module"};
constexpr std::array<std::string_view, 7> kBackwardNames = {
    "compiled_bw",         "compiled_bw_func",  "bw_module",     "lazy_backward_info",
    "_lazy_backward_info", "backward_compiler", "_backward_impl"};
// Compilers: they lead to torch's configuration and tables, not to what was compiled.
constexpr std::array<std::string_view, 4> kNotFollowed = {"bw_compiler", "fw_compiler",
                                                          "inference_compiler", "compiler_fn"};
// Of closures of the joint-graph path, and of an AOTAutogradResult.
constexpr std::array<std::string_view, 6> kTextNames = {
    "joint_graph_str",     "fw_module_str",         "bw_module_str",
    "aot_joint_graph_str", "aot_forward_graph_str", "aot_backward_graph_str"};

template <std::size_t n>
bool contains(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Walk {
 public:
  Walk(PythonObjects& python, LookDeadline deadline) : python_(python), deadline_(deadline) {}

  Reachable run(std::uint64_t root) {
    reach("", root, {});
    while (!queue_.empty() && !over(deadline_)) {
      Step step = queue_.front();
      queue_.pop_front();
      enter(step);
    }
    found_.complete = found_.complete && queue_.empty();
    return std::move(found_);
  }

 private:
  struct Step {
    std::uint64_t object = 0;
    int depth = 0;
    GeneratedDirection direction = GeneratedDirection::kNone;
  };

  void reach(std::string_view name, std::uint64_t object, const Step& from) {
    if (!plausible_pointer(object) || contains(kNotFollowed, name)) return;
    if (contains(kTextNames, name) && python_.values().type_name(object) == "str") {
      if (seen_.insert(object).second) found_.texts.push_back({object, std::string(name)});
      return;
    }
    if (from.depth >= kMaxDepth || seen_.size() >= kMaxObjects) {
      found_.complete = false;
      return;
    }
    if (!seen_.insert(object).second) return;
    Step step{object, from.depth + 1, from.direction};
    if (contains(kForwardNames, name)) step.direction = GeneratedDirection::kForward;
    if (contains(kBackwardNames, name)) step.direction = GeneratedDirection::kBackward;
    queue_.push_back(step);
  }

  void enter(const Step& step) {
    const std::string type = python_.values().type_name(step.object);
    if (type.empty() || contains(kNotEntered, type)) return;
    if (type == "function") return enter_function(step);
    if (type == "method" || type == "staticmethod" || type == "classmethod") {
      if (auto self = python_.method_self(step.object)) reach("", *self, step);
      if (auto function = python_.method_function(step.object)) reach("", *function, step);
      return;
    }
    if (type == "builtin_function_or_method") {
      if (auto self = python_.builtin_self(step.object)) reach("", *self, step);
      return;
    }
    if (type == "tuple" || type == "list") return enter_items(step, type == "tuple");
    if (type == "dict") return enter_dict(step, step.object);
    if (type == "FunctionMeta") return enter_autograd_function(step);
    if (type == "CompiledFxGraph") {
      found_.compiled_graphs.push_back({step.object, step.direction, false});
      return;
    }
    for (std::uint64_t part : python_.partial_parts(step.object)) reach("", part, step);
    enter_instance(step, type);
  }

  void enter_function(const Step& step) {
    for (const NamedValue& cell : python_.closure(step.object)) reach(cell.name, cell.value, step);
    if (auto dict = python_.function_dict(step.object)) enter_dict(step, *dict);
  }

  void enter_items(const Step& step, bool tuple) {
    auto items = tuple ? python_.values().tuple_items(step.object, kMaxItems)
                       : python_.values().list_items(step.object, kMaxItems);
    for (std::uint64_t item : items.value_or(std::vector<std::uint64_t>())) reach("", item, step);
  }

  void enter_dict(const Step& step, std::uint64_t dict) {
    auto items = python_.values().dict_items(dict, kMaxItems);
    for (const DictEntry& entry : items.value_or(std::vector<DictEntry>())) {
      auto name = python_.values().read_str(entry.key, 256);
      reach(name.value_or(""), entry.value, step);
    }
  }

  // AOTAutograd's class CompiledFunction: what it compiled are attributes of the class.
  void enter_autograd_function(const Step& step) {
    if (python_.objects().type_name(step.object) != "CompiledFunction") return;
    found_.has_backward = true;
    auto dict =
        python_.objects().memory().read_pointer(step.object + python_.objects().layout().type_dict);
    if (dict) enter_dict(step, *dict);
  }

  void enter_instance(const Step& step, std::string_view type) {
    RemoteValues& values = python_.values();
    if (values.is_a(step.object, "GraphModule")) {
      auto meta = values.attribute(step.object, "meta");
      auto id = meta ? python_.objects().dict_get(*meta, "dynamo_compile_id") : std::nullopt;
      found_.graph_modules.push_back({step.object, step.direction, id.has_value()});
      if (id) note_id(python_.trace_id(*id));
      return;
    }
    if (values.is_a(step.object, "Module") || values.is_a(step.object, "TensorBase")) return;
    if (type == "ViewAndMutationMeta") {
      auto id = python_.text_attribute(step.object, "compile_id_str", 64);
      if (id) note_id(id->text);
      return;
    }
    auto attributes = values.attributes(step.object, kMaxItems);
    for (const NamedValue& item : attributes.value_or(std::vector<NamedValue>())) {
      reach(item.name, item.value, step);
    }
  }

  void note_id(const std::string& id) {
    if (is_trace_id(id)) found_.trace_ids.insert(id);
  }

  PythonObjects& python_;
  LookDeadline deadline_;
  Reachable found_;
  std::deque<Step> queue_;
  std::unordered_set<std::uint64_t> seen_;
};

}  // namespace

Reachable find_reachable(PythonObjects& python, std::uint64_t compiled_fn, LookDeadline deadline) {
  return Walk(python, deadline).run(compiled_fn);
}

}  // namespace dynprof
