// The name under which torch.fx writes a function, an operator or a class into the code of a graph
// (torch.fx.node._get_qualified_name): "torch._C._nn.linear", "torch.ops.aten.add.Tensor", "operator.add".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "user/generated/python_objects.h"

namespace dynprof {

// "<NAME OF ITS TYPE>" for what has no such name.
std::string callable_name(PythonObjects& python, std::uint64_t object);

struct OperatorForm {
  std::string_view name;  // of the module `operator`: "add"
  std::string_view form;  // how it is written: "{0} + {1}"; "{0} += {1}" changes its first argument
  bool in_place = false;
  std::size_t operands() const { return form.find("{1}") == std::string_view::npos ? 1 : 2; }
};
// How torch.fx writes a call of `name` ("operator.add"); nullptr: as a call.
const OperatorForm* operator_form(std::string_view name);

}  // namespace dynprof
