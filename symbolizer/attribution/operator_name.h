// Names of torch's operators from names of native functions: "at::_ops::add_Tensor::call(...)" is aten::add.Tensor.
// A function's name is the target's: any text is possible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dynprof {

enum class OperatorKind : std::uint8_t {
  kOperator,  // that torch's dispatcher knows: "aten::mm"
  kNode,  // of the autograd graph, which has the name that torch's profiler shows: "MmBackward0"
  kFunction,  // an operator of a C++ extension: its function's name, since no frame has its own
};
const char* operator_kind_text(OperatorKind kind);

struct OperatorName {
  OperatorKind kind = OperatorKind::kOperator;
  std::string name;      // "aten::add"
  std::string overload;  // "Tensor"; "" where it has none
  bool operator==(const OperatorName&) const = default;

  std::string text() const { return overload.empty() ? name : name + '.' + overload; }
};

// What a function calls or is the kernel of; nullopt: it is none of the dispatcher's or autograd's
// functions. Mangled or not, with what a compiler adds to a clone's name.
std::optional<OperatorName> operator_of_function(std::string_view function);

// An operator of aten from its name in C++, where '_' stands for the '.' before an overload: "mm_dtype_out".
OperatorName split_overload(std::string_view name);

}  // namespace dynprof
