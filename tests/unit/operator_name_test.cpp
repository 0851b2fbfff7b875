#include "symbolizer/attribution/operator_name.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "symbolizer/attribution/aten_names.h"

namespace dynprof {
namespace {

std::string text(std::string_view function) {
  const auto found = operator_of_function(function);
  return found ? found->text() : "";
}

struct Golden {
  std::string function, name, overload;
};

// Of torch 2.13: one operator of each overload name, and those whose own name ends like one.
std::vector<Golden> golden() {
  std::ifstream file("tests/golden/aten_operators.tsv");
  std::vector<Golden> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    Golden row;
    std::getline(fields, row.function, '\t');
    std::getline(fields, row.name, '\t');
    std::getline(fields, row.overload, '\t');
    rows.push_back(row);
  }
  return rows;
}

TEST(OperatorName, OverloadsAreThoseOfTorch) {
  const std::vector<Golden> rows = golden();
  ASSERT_GT(rows.size(), 300u) << "run from the root of the repository";
  for (const Golden& row : rows) {
    const OperatorName split = split_overload(row.function);
    EXPECT_EQ(split.name, "aten::" + row.name) << row.function;
    EXPECT_EQ(split.overload, row.overload) << row.function;
  }
}

TEST(OperatorName, ListsAreSortedAndUsed) {
  EXPECT_TRUE(std::is_sorted(std::begin(kAtenOverloads), std::end(kAtenOverloads)));
  EXPECT_TRUE(std::is_sorted(std::begin(kAtenWholeNames), std::end(kAtenWholeNames)));
  const std::vector<Golden> rows = golden();
  for (std::string_view overload : kAtenOverloads) {
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const Golden& row) {
      return row.overload == overload;
    })) << overload;
  }
}

TEST(OperatorName, CallsAndRedispatches) {
  EXPECT_EQ(text("at::_ops::mm::call(at::Tensor const&, at::Tensor const&)"), "aten::mm");
  EXPECT_EQ(text("at::_ops::mm::redispatch(c10::DispatchKeySet, at::Tensor const&)"), "aten::mm");
  EXPECT_EQ(text("at::_ops::add_Tensor::call(at::Tensor const&)"), "aten::add.Tensor");
  EXPECT_EQ(text("at::_ops::add__Tensor::call(at::Tensor&)"), "aten::add_.Tensor");
  EXPECT_EQ(text("at::_ops::mm_dtype_out::call(at::Tensor const&)"), "aten::mm.dtype_out");
}

TEST(OperatorName, ClonesAndNamesThatWereNotDemangled) {
  EXPECT_EQ(text("at::_ops::mm::call(at::Tensor const&) [clone .constprop.0]"), "aten::mm");
  EXPECT_EQ(text("at::_ops::mm::call"), "aten::mm");
  EXPECT_EQ(text("at::_ops::mm::call.cold"), "aten::mm");
  EXPECT_EQ(text("_ZN2at4_ops2mm4callERKNS_6TensorES4_"), "aten::mm");
  EXPECT_EQ(text("_ZN2at4_ops2mm4callERKNS_6TensorES4_.constprop.0"), "aten::mm");
  EXPECT_EQ(text("_ZN2at4_ops10add_Tensor10redispatchEN3c1014DispatchKeySetE"), "aten::add.Tensor");
}

TEST(OperatorName, AutogradNodes) {
  const auto node = operator_of_function(
      "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->kind, OperatorKind::kNode);
  EXPECT_EQ(node->text(), "MmBackward0");
  EXPECT_EQ(text("_ZN5torch8autograd9generated11MmBackward05applyEOSt6vectorIN2at6TensorE"),
            "MmBackward0");
  EXPECT_EQ(text("torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)"),
            "torch::autograd::AccumulateGrad");
}

TEST(OperatorName, KernelsOfAutogradNameTheirOperator) {
  const std::string autograd = "torch::autograd::VariableType::(anonymous namespace)::";
  EXPECT_EQ(text(autograd + "mm(c10::DispatchKeySet, at::Tensor const&)"), "aten::mm");
  EXPECT_EQ(text(autograd + "add_Tensor(c10::DispatchKeySet)"), "aten::add.Tensor");
  // The overload of these stands behind the name in C++, which has an "out" of its own.
  EXPECT_EQ(text(autograd + "masked_fill_out_Scalar_out(c10::DispatchKeySet)"),
            "aten::masked_fill.Scalar_out");
  EXPECT_EQ(text(autograd + "checked_cast_variable(at::Tensor const&, char const*, int)"), "");
}

std::string boxed(const std::string& kernel) {
  return "c10::impl::make_boxed_from_unboxed_functor<c10::impl::detail::WrapFunctionIntoFunctor_<"
         "c10::CompileTimeFunctionPointer<std::tuple<at::Tensor, at::Tensor> (at::Tensor const&, "
         "std::optional<at::Tensor> const&), &" +
         kernel +
         ">, std::tuple<at::Tensor, at::Tensor>, c10::guts::typelist::typelist<at::Tensor const&> "
         ">, "
         "false>::call(c10::OperatorKernel*, c10::OperatorHandle const&)";
}

TEST(OperatorName, OperatorsThatAreCalledByTheirSchema) {
  const std::string aten = "at::(anonymous namespace)::(anonymous namespace)::";
  EXPECT_EQ(text(boxed(aten + "wrapper_CPU__bmm")), "aten::bmm");
  EXPECT_EQ(text(boxed(aten + "wrapper_CPU___scaled_dot_product_flash_attention_for_cpu")),
            "aten::_scaled_dot_product_flash_attention_for_cpu");
  EXPECT_EQ(text(boxed(aten + "wrapper_CompositeImplicitAutograd_Tensor_clip")),
            "aten::clip.Tensor");
  EXPECT_EQ(text(boxed(aten + "wrapper_CompositeExplicitAutograd_out__resize_output_out")),
            "aten::_resize_output.out");
  EXPECT_EQ(text(boxed("torch::autograd::VariableType::(anonymous namespace)::mul_Tensor")),
            "aten::mul.Tensor");
  const auto own = operator_of_function(boxed("mine::(anonymous namespace)::add_one"));
  ASSERT_TRUE(own);
  EXPECT_EQ(own->kind, OperatorKind::kFunction);
  EXPECT_EQ(own->name, "mine::(anonymous namespace)::add_one");
}

// Other functions, and names that a target made up.
TEST(OperatorName, OthersAreNone) {
  for (std::string name : {"",
                           "at::_ops::",
                           "at::_ops::mm",
                           "at::_ops::mm::",
                           "at::_ops::mm::called(int)",
                           "at::_ops::mm::schema_str",
                           "at::_ops::::call(int)",
                           "at::_ops::m m::call(int)",
                           "at::_ops::\x1b[2J::call(int)",
                           "xat::_ops::mm::call(int)",
                           "std::at::_ops::mm::call(int)",
                           "_ZN2at4_ops",
                           "_ZN2at4_ops99999999999999999999mm4callE",
                           "_ZN2at4_ops9mm4callE",
                           "_ZN2at4_ops2m\n4callE",
                           "_ZN2at4_ops0call",
                           "torch::autograd::generated::::apply(int)",
                           "torch::autograd::generated::MmBackward0::release_variables()",
                           "torch::autograd::VariableType::(anonymous namespace)::",
                           "wrapper_CPU__mm",
                           "c10::impl::make_boxed_from_unboxed_functor<",
                           "torch::autograd::PyNode::applyx"}) {
    EXPECT_EQ(text(name), "") << name;
  }
  EXPECT_EQ(text(boxed("at::(anonymous namespace)::wrapper_")), "");
  EXPECT_EQ(text(boxed("")), "");
  EXPECT_EQ(text(boxed("<evil>")), "");
  const std::string call = "::call(int)";
  EXPECT_EQ(text("at::_ops::" + std::string(200, 'a') + call), "aten::" + std::string(200, 'a'));
  EXPECT_EQ(text("at::_ops::" + std::string(201, 'a') + call), "");
  EXPECT_EQ(text("at::_ops::" + std::string(1'000'000, '_') + call), "");
}

}  // namespace
}  // namespace dynprof
