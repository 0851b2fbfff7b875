#include "symbolizer/attribution/operator_name.h"

#include <algorithm>
#include <iterator>

#include "symbolizer/attribution/aten_names.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxName = 200;  // the longest in torch 2.13 has 61 characters
const std::string kAten = "aten::";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

template <std::size_t N>
bool contains(const std::string_view (&sorted)[N], std::string_view word) {
  return std::binary_search(std::begin(sorted), std::end(sorted), word);
}

bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The identifier that `text` begins with, "" if it does not or is too long for one.
std::string_view take_word(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_word);
  const auto size = static_cast<std::size_t>(end - text.begin());
  if (size > kMaxName) return {};
  const std::string_view word = text.substr(0, size);
  text.remove_prefix(size);
  return word;
}

// Behind a function's name: nothing, its parameters, or what a compiler adds (".cold", " [clone .isra.0]").
bool ends_name(std::string_view rest) {
  return rest.empty() || rest.front() == '(' || rest.front() == '.' || rest.front() == ' ';
}

// "2mm" of a mangled name.
std::string_view take_mangled_word(std::string_view& text) {
  std::size_t size = 0;
  while (!text.empty() && text.front() >= '0' && text.front() <= '9' && size <= kMaxName) {
    size = size * 10 + static_cast<std::size_t>(text.front() - '0');
    text.remove_prefix(1);
  }
  if (size == 0 || size > kMaxName || size > text.size()) return {};
  const std::string_view word = text.substr(0, size);
  if (!std::all_of(word.begin(), word.end(), is_word)) return {};
  text.remove_prefix(size);
  return word;
}

// The functions through which an operator is called. Those of the dispatcher itself are inlined into them.
std::string_view called_operator(std::string_view function) {
  if (skip(function, "at::_ops::")) {
    const std::string_view name = take_word(function);
    const bool calls = skip(function, "::call") || skip(function, "::redispatch");
    return calls && ends_name(function) ? name : std::string_view();
  }
  if (skip(function, "_ZN2at4_ops")) {
    const std::string_view name = take_mangled_word(function);
    return skip(function, "4callE") || skip(function, "10redispatchE") ? name : std::string_view();
  }
  return {};
}

// "torch::autograd::generated::MmBackward0::apply(...)".
std::optional<OperatorName> node(std::string_view function) {
  const bool generated = skip(function, "torch::autograd::generated::") ||
                         skip(function, "_ZN5torch8autograd9generated");
  if (generated) {
    const bool mangled = !function.empty() && function.front() >= '0' && function.front() <= '9';
    const std::string_view name = mangled ? take_mangled_word(function) : take_word(function);
    const bool applies = mangled ? skip(function, "5applyE") : skip(function, "::apply");
    if (name.empty() || !applies || (!mangled && !ends_name(function))) return std::nullopt;
    return OperatorName{OperatorKind::kNode, std::string(name), {}};
  }
  for (std::string_view name :
       {"torch::autograd::AccumulateGrad", "torch::autograd::CopySlices",
        "torch::autograd::GraphRoot", "torch::autograd::Error", "torch::autograd::PyNode"}) {
    std::string_view rest = function;
    if (skip(rest, name) && skip(rest, "::apply") && ends_name(rest))
      return OperatorName{OperatorKind::kNode, std::string(name), {}};
  }
  return std::nullopt;
}

// An operator of aten from the name of a kernel that torch generates for it: "masked_fill_out_Scalar_out" is
// masked_fill.Scalar_out.
OperatorName of_generated(std::string_view name) {
  const std::size_t out = name.find("_out_", 1);
  if (out != std::string_view::npos && name.ends_with("out"))
    return {OperatorKind::kOperator, kAten + std::string(name.substr(0, out)),
            std::string(name.substr(out + 5))};
  return split_overload(name);
}

// "wrapper_CPU__mm", "wrapper_CPU_out_mm_out" (the overload comes first).
std::optional<OperatorName> of_wrapper(std::string_view name) {
  if (!skip(name, "wrapper_")) return std::nullopt;
  const std::size_t key = name.find('_');  // "CPU"
  if (key == std::string_view::npos) return std::nullopt;
  name.remove_prefix(key + 1);
  if (skip(name, "_")) return OperatorName{OperatorKind::kOperator, kAten + std::string(name), {}};
  for (std::size_t at = name.rfind('_'); at != std::string_view::npos && at > 0;
       at = name.rfind('_', at - 1)) {
    const std::string_view overload = name.substr(0, at);
    // One overload is called "out_": more often that is "out", and a name that begins with '_'.
    if (overload.ends_with('_') || !contains(kAtenOverloads, overload)) continue;
    std::string_view base = name.substr(at + 1);
    if (overload.ends_with("out") && base.ends_with("_out")) base.remove_suffix(4);
    return OperatorName{OperatorKind::kOperator, kAten + std::string(base), std::string(overload)};
  }
  return of_generated(name);
}

// The kernel of an operator that was called with values in boxes, which Python does for what it calls by
// its schema (torch.ops.aten.mm.default): an argument of the template.
std::optional<OperatorName> boxed_operator(std::string_view function) {
  if (!skip(function,
            "c10::impl::make_boxed_from_unboxed_functor<c10::impl::detail::"
            "WrapFunctionIntoFunctor_<c10::CompileTimeFunctionPointer<"))
    return std::nullopt;
  const std::size_t begin = function.find("), &");
  if (begin == std::string_view::npos) return std::nullopt;
  function.remove_prefix(begin + 4);
  const std::size_t end = function.find('>');
  if (end == std::string_view::npos || end == 0 || end > kMaxName) return std::nullopt;
  const std::string_view kernel = function.substr(0, end);
  const std::size_t last = kernel.rfind("::");
  const std::string_view name = last == std::string_view::npos ? kernel : kernel.substr(last + 2);
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_word)) return std::nullopt;
  if (kernel.starts_with("at::(anonymous namespace)::")) return of_wrapper(name);
  for (std::string_view generated : {"torch::autograd::VariableType::", "torch::TraceType::",
                                     "torch::ADInplaceOrView::", "at::functionalization::"})
    if (kernel.starts_with(generated)) return of_generated(name);
  return OperatorName{OperatorKind::kFunction, std::string(kernel), {}};
}

}  // namespace

const char* operator_kind_text(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::kOperator:
      return "operator";
    case OperatorKind::kNode:
      return "autograd node";
    case OperatorKind::kFunction:
      return "function";
  }
  return "operator";
}

OperatorName split_overload(std::string_view name) {
  auto made = [](std::string_view base, std::string_view overload) {
    return OperatorName{OperatorKind::kOperator, kAten + std::string(base), std::string(overload)};
  };
  if (contains(kAtenWholeNames, name)) return made(name, "");
  if (name.ends_with("_out") && contains(kAtenWholeNames, name.substr(0, name.size() - 4)))
    return made(name.substr(0, name.size() - 4), "out");
  // The longest that is one.
  for (std::size_t at = name.find('_', 1); at != std::string_view::npos;
       at = name.find('_', at + 1))
    if (contains(kAtenOverloads, name.substr(at + 1)))
      return made(name.substr(0, at), name.substr(at + 1));
  return made(name, "");
}

std::optional<OperatorName> operator_of_function(std::string_view function) {
  if (const std::string_view name = called_operator(function); !name.empty())
    return split_overload(name);
  constexpr std::string_view kAutograd = "torch::autograd::VariableType::(anonymous namespace)::";
  if (std::string_view rest = function; skip(rest, kAutograd)) {
    // The only one of these frames where Python calls an operator by its schema.
    const std::string_view name = take_word(rest);
    if (name.empty() || !ends_name(rest)) return std::nullopt;
    // Helpers are there too, such as checked_cast_variable(at::Tensor const&, ...); operators get the keys first.
    if (rest.starts_with('(') && !rest.starts_with("(c10::DispatchKeySet")) return std::nullopt;
    return of_generated(name);
  }
  if (auto found = node(function)) return found;
  return boxed_operator(function);
}

}  // namespace dynprof
