// The nodes of C++ kernels by the order of a wrapper's calls; against torch itself: tests/runtime/test_kernel_lines.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "symbolizer/attribution/cpp_kernel_lines.h"

namespace dynprof {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kGraph = R"(
    def forward(self, x: "f32[8]", w: "f32[8]", v: "f32[8]"):
        # File: /tmp/m.py:1 in forward, code: y = x.sin()
        sin: "f32[8]" = torch.ops.aten.sin.default(x)
        # File: /tmp/m.py:2 in forward, code: y = first(y)
        permute: "f32[8]" = torch.ops.aten.permute.default(w, [1, 0])
        mm: "f32[8]" = torch.ops.aten.mm.default(sin, permute);  sin = permute = None
        # File: /tmp/m.py:3 in forward, code: z = y.relu()
        relu: "f32[8]" = torch.ops.aten.relu.default(mm)
        # File: /tmp/m.py:4 in forward, code: z = second(z)
        mm_1: "f32[8]" = torch.ops.aten.mm.default(relu, v);  relu = None
        # File: /tmp/m.py:5 in forward, code: return z + y
        add: "f32[8]" = torch.ops.aten.add.Tensor(mm_1, mm);  mm_1 = mm = None
        return (add,)
)";

std::string wrapper(const std::string& calls) {
  std::string text;
  for (const char* name : {"sin", "relu", "add", "more"})
    text += std::string("cpp_") + name +
            " = async_compile.cpp_pybinding(['float*'], '''\nvoid kernel()\n''')\n";
  return text + "def call(self, args):\n    x, w, v = args\n" + calls;
}

const std::string kCalls =
    "    cpp_sin(x, buf0)\n"
    "    extern_kernels.mm(buf0, reinterpret_tensor(w, (8, 8), (1, 8), 0), out=buf1)\n"
    "    cpp_relu(buf1, buf2)\n"
    "    extern_kernels.mm(buf2, v, out=buf3)\n"
    "    cpp_add(buf3, buf1)\n";

std::vector<std::string> lines_of(const std::string& kernel, const std::string& calls) {
  KernelPlan plan = read_kernel_plan(wrapper(calls), 100);
  add_cpp_lines(plan, read_graph(kGraph, 100));
  for (const PlannedKernel& one : plan.kernels)
    if (one.name == kernel) return one.lines;
  ADD_FAILURE() << "no kernel " << kernel;
  return {};
}

TEST(CppKernelLines, WhatIsComputedBetweenTwoCallsIsOfTheKernelThere) {
  EXPECT_THAT(lines_of("cpp_sin", kCalls), ElementsAre("/tmp/m.py:1 in forward"));
  EXPECT_THAT(lines_of("cpp_relu", kCalls), ElementsAre("/tmp/m.py:3 in forward"));
  EXPECT_THAT(lines_of("cpp_add", kCalls), ElementsAre("/tmp/m.py:5 in forward"));
  EXPECT_THAT(lines_of("extern_kernels.mm", kCalls), ElementsAre("/tmp/m.py:2 in forward"));
}

TEST(CppKernelLines, OfSeveralKernelsBetweenTwoCallsNoneHasLines) {
  std::string calls = kCalls;
  calls.insert(calls.find("    cpp_relu"), "    cpp_more(buf1)\n");
  EXPECT_THAT(lines_of("cpp_relu", calls), IsEmpty());
  EXPECT_THAT(lines_of("cpp_more", calls), IsEmpty());
  EXPECT_THAT(lines_of("cpp_add", calls), ElementsAre("/tmp/m.py:5 in forward"));
}

TEST(CppKernelLines, CallsOfAnotherOrderOrNumberSayNothing) {
  std::string swapped = kCalls;
  swapped.replace(swapped.find("(w,"), 3, "(v,");
  EXPECT_THAT(lines_of("cpp_sin", swapped), IsEmpty()) << "the input is not that of the node";
  EXPECT_THAT(lines_of("cpp_sin", kCalls + "    extern_kernels.mm(buf3, buf3, out=buf4)\n"),
              IsEmpty());
  std::string other = kCalls;
  other.replace(other.find("extern_kernels.mm"), 17, "extern_kernels.bmm");
  EXPECT_THAT(lines_of("cpp_sin", other), IsEmpty());
}

TEST(CppKernelLines, ACallThatNothingDependsOnMayComeLater) {
  constexpr const char* kBackward = R"(
    def forward(self, w: "f32[8]", v: "f32[8]", tangents_1: "f32[8]"):
        # File: /tmp/m.py:2 in forward, code: z = second(y)
        mm: "f32[8]" = torch.ops.aten.mm.default(tangents_1, v)
        mm_1: "f32[8]" = torch.ops.aten.mm.default(tangents_1, w);  tangents_1 = None
        # File: /tmp/m.py:1 in forward, code: y = x.sin()
        cos: "f32[8]" = torch.ops.aten.cos.default(mm_1);  mm_1 = None
        return (mm, cos)
)";
  const auto lines = [&](const std::string& calls) {
    KernelPlan plan = read_kernel_plan(wrapper(calls), 100);
    add_cpp_lines(plan, read_graph(kBackward, 100));
    return plan.kernels[0].lines;
  };
  const std::string first = "    extern_kernels.mm(tangents_1, w, out=buf0)\n";
  const std::string last = "    extern_kernels.mm(tangents_1, v, out=buf1)\n";
  const std::string kernel = "    cpp_sin(buf0)\n";
  EXPECT_THAT(lines(first + kernel + last), ElementsAre("/tmp/m.py:1 in forward"));
  EXPECT_THAT(lines(last + first + kernel), ElementsAre("/tmp/m.py:1 in forward"));
  // A wrapper that draws seeds for dropout: no node of the graph.
  EXPECT_THAT(lines("    aten.randint.low_out(0, 1, [1], out=buf9)\n" + first + kernel + last),
              ElementsAre("/tmp/m.py:1 in forward"));
}

TEST(CppKernelLines, ACallCannotComeBeforeWhatItDependsOn) {
  std::string calls = kCalls;
  const std::string second = "    extern_kernels.mm(buf2, v, out=buf3)\n";
  calls.erase(calls.find(second), second.size());
  EXPECT_THAT(lines_of("cpp_sin", second + calls), IsEmpty());
}

TEST(CppKernelLines, WhatInductorSaysIsKept) {
  KernelPlan plan = read_kernel_plan(wrapper(kCalls), 100);
  plan.kernels[0].nodes = {"sin"};
  plan.kernels[0].lines = {"of Inductor"};
  add_cpp_lines(plan, read_graph(kGraph, 100));
  EXPECT_THAT(plan.kernels[0].lines, ElementsAre("of Inductor"));
}

TEST(CppKernelLines, NothingAtAll) {
  KernelPlan plan;
  add_cpp_lines(plan, {});
  EXPECT_THAT(plan.kernels, IsEmpty());
  // Names that are used before they are there, and twice.
  add_cpp_lines(
      plan,
      read_graph("def forward(self, a):\n  b = torch.ops.aten.mm.default(c, b)\n"
                 "  c = torch.ops.aten.mm.default(b, b)\n  b = torch.ops.aten.add.Tensor(c, c)\n",
                 100));
  EXPECT_THAT(plan.kernels, IsEmpty());
}

}  // namespace
}  // namespace dynprof
