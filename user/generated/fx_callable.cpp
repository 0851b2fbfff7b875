#include "user/generated/fx_callable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dynprof {
namespace {

// In CPython 3.10-3.15, in bytes behind the object's head: PyCFunctionObject m_ml, m_self, m_module, and PyMethodDef
// begins with ml_name; PyFunctionObject func_globals, func_builtins, func_name; PyDescrObject d_type, d_name.
constexpr std::uint32_t kBuiltinDefinition = 0;
constexpr std::uint32_t kBuiltinModule = 16;
constexpr std::uint32_t kFunctionName = 16;
constexpr std::uint32_t kDescriptorName = 8;
// PyFunctionObject: func_dict, func_weakreflist, func_module.
constexpr std::uint32_t kModuleAfterDict = 16;

constexpr std::size_t kMaxName = 256;

constexpr std::array kOperators = {
    OperatorForm{"add", "{0} + {1}"},
    OperatorForm{"sub", "{0} - {1}"},
    OperatorForm{"mul", "{0} * {1}"},
    OperatorForm{"matmul", "{0} @ {1}"},
    OperatorForm{"truediv", "{0} / {1}"},
    OperatorForm{"floordiv", "{0} // {1}"},
    OperatorForm{"mod", "{0} % {1}"},
    OperatorForm{"pow", "{0} ** {1}"},
    OperatorForm{"lshift", "{0} << {1}"},
    OperatorForm{"rshift", "{0} >> {1}"},
    OperatorForm{"and_", "{0} & {1}"},
    OperatorForm{"or_", "{0} | {1}"},
    OperatorForm{"xor", "{0} ^ {1}"},
    OperatorForm{"eq", "{0} == {1}"},
    OperatorForm{"ne", "{0} != {1}"},
    OperatorForm{"lt", "{0} < {1}"},
    OperatorForm{"gt", "{0} > {1}"},
    OperatorForm{"le", "{0} <= {1}"},
    OperatorForm{"ge", "{0} >= {1}"},
    OperatorForm{"getitem", "{0}[{1}]"},
    OperatorForm{"pos", "+{0}"},
    OperatorForm{"neg", "-{0}"},
    OperatorForm{"invert", "~{0}"},
    OperatorForm{"iadd", "{0} += {1}", true},
    OperatorForm{"isub", "{0} -= {1}", true},
    OperatorForm{"imul", "{0} *= {1}", true},
    OperatorForm{"imatmul", "{0} @= {1}", true},
    OperatorForm{"itruediv", "{0} /= {1}", true},
    OperatorForm{"ifloordiv", "{0} //= {1}", true},
    OperatorForm{"imod", "{0} %= {1}", true},
    OperatorForm{"ipow", "{0} **= {1}", true},
    OperatorForm{"ilshift", "{0} <<= {1}", true},
    OperatorForm{"irshift", "{0} >>= {1}", true},
    OperatorForm{"iand", "{0} &= {1}", true},
    OperatorForm{"ior", "{0} |= {1}", true},
    OperatorForm{"ixor", "{0} ^= {1}", true},
};

class Namer {
 public:
  Namer(PythonObjects& python, std::uint64_t object) : python_(python), object_(object) {}

  std::string name() {
    const std::string type = python_.values().type_name(object_);
    std::string found;
    if (type == "function") {
      const PythonLayout& layout = python_.objects().layout();
      found = joined(text_at(layout.function_dict + kModuleAfterDict),
                     text_at(layout.object_size + kFunctionName));
    } else if (type == "builtin_function_or_method") {
      found = builtin();
    } else if (type == "method_descriptor" || type == "wrapper_descriptor") {
      found =
          joined("torch.Tensor", text_at(python_.objects().layout().object_size + kDescriptorName));
    } else if (type == "OpOverload") {
      found = op(attribute("_name"), true);
    } else if (type == "OpOverloadPacket") {
      found = op(attribute("_qualified_op_name"), false);
    } else if (python_.values().is_a(object_, "HigherOrderOperator")) {
      found = joined("torch.ops.higher_order", attribute("_name"));
    } else if (type == "type") {
      auto module = python_.objects().type_get(object_, "__module__");
      found = joined(module ? text(*module) : "", python_.objects().type_name(object_));
    }
    return found.empty() ? "<" + type + ">" : found;
  }

 private:
  // Of a module's function m_module is the module's name; of a static method, as of torch.cat, it is null.
  std::string builtin() {
    RemoteMemory& memory = python_.objects().memory();
    const std::uint64_t head = object_ + python_.objects().layout().object_size;
    auto definition = memory.read_pointer(head + kBuiltinDefinition);
    auto name_at = definition ? memory.read<std::uint64_t>(*definition) : std::nullopt;
    std::string name = name_at ? memory.read_c_string(*name_at, kMaxName).value_or("") : "";
    auto module = memory.read_pointer(head + kBuiltinModule);
    std::string in = module && *module != 0 ? text(*module) : "torch";
    if (in == "builtins") return name;
    if (in == "_operator") in = "operator";
    return joined(in, name);
  }

  // "aten::add.Tensor", an overload without a name: "aten::t" -> "torch.ops.aten.t.default".
  static std::string op(const std::string& name, bool overload) {
    const std::size_t colons = name.find("::");
    if (colons == std::string::npos) return "";
    std::string in_space = name.substr(colons + 2);
    if (overload && in_space.find('.') == std::string::npos) in_space += ".default";
    return fmt::format("torch.ops.{}.{}", name.substr(0, colons), in_space);
  }

  static std::string joined(std::string module, const std::string& name) {
    if (name.empty()) return "";
    constexpr std::string_view kOps = "torch._ops";
    if (module.starts_with(kOps)) module.replace(0, kOps.size(), "torch.ops");
    return module.empty() ? name : module + "." + name;
  }

  std::string text(std::uint64_t object) {
    return python_.values().read_str(object, kMaxName).value_or("");
  }
  std::string text_at(std::uint32_t offset) {
    auto object = python_.objects().memory().read_pointer(object_ + offset);
    return object ? text(*object) : "";
  }
  std::string attribute(std::string_view name) {
    auto value = python_.values().attribute(object_, name);
    return value ? text(*value) : "";
  }

  PythonObjects& python_;
  std::uint64_t object_;
};

}  // namespace

std::string callable_name(PythonObjects& python, std::uint64_t object) {
  return Namer(python, object).name();
}

const OperatorForm* operator_form(std::string_view name) {
  constexpr std::string_view kModule = "operator.";
  if (!name.starts_with(kModule)) return nullptr;
  name.remove_prefix(kModule.size());
  auto found = std::find_if(kOperators.begin(), kOperators.end(),
                            [&](const OperatorForm& form) { return form.name == name; });
  return found != kOperators.end() ? &*found : nullptr;
}

}  // namespace dynprof
