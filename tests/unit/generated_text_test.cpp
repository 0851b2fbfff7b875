// What is read of the texts that torch generated: guards, graphs, the kernels of a wrapper; and how they are
// shown in a page.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "symbolizer/attribution/graph_text.h"
#include "symbolizer/attribution/kernel_plan.h"
#include "symbolizer/export/guard_text.h"
#include "symbolizer/export/markdown.h"

namespace dynprof {
namespace {

using Texts = std::vector<std::string>;

TEST(GuardText, SaysWhatMustHoldAndOfWhat) {
  GuardLine guard = read_guard(
      "___check_type_id(L['self']._modules['a, b'], 711777600), type=<class 'torch.nn.ModuleList'>"
      "  # x = block(x)  # model.py:43 in forward (HINT: type ModuleList)");
  EXPECT_EQ(guard.condition, "type(L['self']._modules['a, b']) is <class 'torch.nn.ModuleList'>");
  EXPECT_EQ(guard.source, "L['self']._modules['a, b']");
  EXPECT_EQ(guard.reason, "x = block(x)  # model.py:43 in forward (HINT: type ModuleList)");

  guard = read_guard("___check_obj_id(G['torch'].nn, 140487353063664), type=<class 'module'>");
  EXPECT_EQ(guard.condition, "G['torch'].nn is the same object, of <class 'module'>");
  EXPECT_EQ(guard.reason, "");

  guard = read_guard(
      "check_tensor(L['x'], Tensor, DispatchKeySet(CPU, BackendSelect), torch.float32, "
      "device=None, requires_grad=False, size=[8, 32], stride=[32, 1])");
  EXPECT_EQ(guard.condition,
            "L['x'] is a Tensor, torch.float32, requires_grad=False, size=[8, 32], stride=[32, 1]");
  EXPECT_EQ(read_guard("not ___dict_contains('k', L['d'])").condition, "'k' is not in L['d']");
  EXPECT_EQ(read_guard("3 <= L['x'].size()[0]").source, "L['x'].size()[0]");
}

TEST(GuardText, WhatIsNotKnownPassesUnchanged) {
  for (const char* text : {"utils_device.CURRENT_DEVICE == None", "", "L['x"})
    EXPECT_NE(read_guard(text).condition.find(std::string(text).substr(0, 2)), std::string::npos);
  EXPECT_EQ(read_guard("___check_global_state()").source, "");
  EXPECT_EQ(read_guard("check_tensor(L['x'").condition, "L['x' is a ");
  EXPECT_EQ(read_guard_file("# head\n\na\nb\nc\n", 2).size(), 2u);
}

constexpr const char* kGraph = R"py(class <lambda>(torch.nn.Module):
    def forward(self, primals_1: "f32[16, 8][8, 1]cpu", s0: "Sym(s0)", plain):
         # File: /tmp/model.py:12 in forward, code: x = self.first(x)
        permute: "f32[8, 16][1, 8]cpu" = torch.ops.aten.permute.default(primals_1, [1, 0]);  primals_1 = None
        addmm: "f32[4, 16][16, 1]cpu" = torch.ops.aten.addmm.default(plain, plain, permute)
         # File: /tmp/model.py:13 in forward, code: x = x.relu()
        relu: "f32[4, 16][16, 1]cpu" = torch.ops.aten.relu.default(addmm);  addmm = None
        return (relu,)
)py";

TEST(GraphText, NodesHaveShapesStridesAndLines) {
  std::vector<GraphNode> nodes = read_graph(kGraph, 100);
  ASSERT_EQ(nodes.size(), 6u);
  EXPECT_EQ(nodes[0].name, "primals_1");
  EXPECT_EQ(nodes[0].operation, "");
  EXPECT_EQ(nodes[0].shape, "[16, 8]");
  EXPECT_EQ(nodes[1].annotation, "Sym(s0)");
  EXPECT_EQ(nodes[2].name, "plain");
  EXPECT_EQ(nodes[3].operation, "torch.ops.aten.permute.default");
  EXPECT_EQ(nodes[3].dtype, "f32");
  EXPECT_EQ(nodes[3].strides, "[1, 8]");
  EXPECT_EQ(nodes[3].device, "cpu");
  EXPECT_EQ(nodes[4].line, "/tmp/model.py:12 in forward");
  EXPECT_EQ(nodes[5].code, "x = x.relu()");
  EXPECT_EQ(read_graph(kGraph, 2).size(), 2u);
}

TEST(GraphText, NodesOfLiveGraphsHaveModulesAndSequenceNumbers) {
  std::vector<GraphNode> nodes = read_graph(
      "def forward(self, x: \"f32[2][1]\"):\n"
      "\n"
      "    # Module: L['self'].first\n"
      "    # File: /tmp/model.py:12 in forward, code: x = self.first(x)\n"
      "    add: \"f32[2][1]\" = x + 1  # seq_nr 12\n"
      "\n"
      "    # File: /tmp/model.py:13 in forward, code: x += 1\n"
      "    add += 1;  add_1: \"f32[2][1]\" = add  # seq_nr 13\n"
      "    relu = add_1.relu()  # seq_nr 14\n"
      "\n"
      "    # No stack trace\n"
      "    sum_1 = relu.sum()\n",
      100);
  ASSERT_EQ(nodes.size(), 5u);
  EXPECT_EQ(nodes[0].shape, "[2]");
  EXPECT_EQ(nodes[1].module, "L['self'].first");
  EXPECT_EQ(nodes[1].sequence, "12");
  EXPECT_EQ(nodes[1].inputs, Texts{"x"});
  EXPECT_EQ(nodes[2].name, "add_1");
  EXPECT_EQ(nodes[2].operation, "+=");
  EXPECT_EQ(nodes[2].inputs, Texts{"add"});
  EXPECT_EQ(nodes[2].strides, "[1]");
  EXPECT_EQ(nodes[2].sequence, "13");
  const GraphNode& relu = nodes[3];
  EXPECT_EQ(relu.module, "");
  EXPECT_EQ(relu.line, "/tmp/model.py:13 in forward");
  EXPECT_EQ(relu.sequence, "14");
  EXPECT_EQ(nodes.back().line, "");
  EXPECT_EQ(nodes.back().sequence, "");
}

TEST(GraphText, OtherTextHasNoNodes) {
  for (const char* text : {"", "def forward(", "def forward(self, x: \"", "a: \"",
                           "a: \"f32[\" = b(", "x y = z", "# File: ", "del x", "x = None"})
    EXPECT_LE(read_graph(text, 10).size(), 1u) << text;
  EXPECT_TRUE(read_graph("x = None\n  # y = 1\n", 10).empty());
}

constexpr const char* kWrapper = R"py(# AOT ID: ['0_forward']
cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r'''
extern "C"  void  kernel(float* in_out_ptr0)
{ triton_poi_fused_add_1.run(never) }
''')
# kernel path: /tmp/k.py
# Topologically Sorted Source Nodes: [add, relu], Original ATen: [aten.add, aten.relu]
# Source node to ATen node mapping:
#   add => add
#   relu => relu
# Graph fragment:
#   %addmm : Tensor "f32[4, 16][16, 1]cpu" = PlaceHolder[target=addmm]
#   %relu : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%addmm,), kwargs = {})
#   return %relu
triton_poi_fused_add_1 = async_compile.triton('triton_poi_fused_add_1', '''
import triton
''', device_str='cuda')
def call(args):
    # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]
    extern_kernels.addmm(primals_2, primals_3, out=buf0)
    cpp_fused_relu_0(buf1)
    cpp_fused_relu_0(buf2)
    # Topologically Sorted Source Nodes: [add, relu], Original ATen: [aten.add, aten.relu]
    triton_poi_fused_add_1.run(buf2, 16, stream=stream0)
    buf3 = torch.ops.aten.sort.stable(buf2)
def get_args():
    pass
def benchmark_compiled_module(args, times=10, repeat=10):
    extern_kernels.addmm(no_kernel)
)py";

TEST(KernelPlan, KernelsHaveNodesAndLines) {
  KernelPlan plan = read_kernel_plan(kWrapper, 100);
  ASSERT_EQ(plan.kernels.size(), 4u);
  EXPECT_TRUE(plan.has_arguments);
  add_lines(plan, read_graph(kGraph, 100));
  const PlannedKernel &cpp = plan.kernels[0], &triton = plan.kernels[1], &addmm = plan.kernels[2];
  EXPECT_EQ(cpp.name, "cpp_fused_relu_0");
  EXPECT_EQ(cpp.language, "cpp");
  EXPECT_EQ(cpp.launches, 2u);
  EXPECT_TRUE(cpp.nodes.empty());
  EXPECT_EQ(triton.language, "triton");
  EXPECT_EQ(triton.launches, 1u);
  EXPECT_EQ(triton.operators, (Texts{"aten.add", "aten.relu"}));
  EXPECT_EQ(triton.nodes, (Texts{"add", "relu"}));
  EXPECT_EQ(triton.lines, Texts{"/tmp/model.py:13 in forward"});
  EXPECT_EQ(addmm.name, "extern_kernels.addmm");
  EXPECT_EQ(addmm.sources, Texts{"linear"});
  EXPECT_EQ(addmm.nodes, Texts{"addmm"});
  EXPECT_EQ(addmm.lines, Texts{"/tmp/model.py:12 in forward"});
  EXPECT_EQ(plan.kernels[3].name, "torch.ops.aten.sort.stable");
  auto json = nlohmann::json::parse(kernel_plan_json(plan));
  EXPECT_EQ(json["kernels"].size(), 4u);
  EXPECT_EQ(json["kernels"][1]["launches"], 1);
}

TEST(KernelPlan, IsBounded) {
  std::string many;
  for (int i = 0; i < 50; ++i)
    many += "k" + std::to_string(i) + " = async_compile.triton('k', '''\n''')\n";
  EXPECT_EQ(read_kernel_plan(many, 7).kernels.size(), 7u);
  EXPECT_TRUE(read_kernel_plan("x = async_compile.", 7).kernels.size() <= 1);
}

TEST(Markdown, TextOfTheTargetStaysWhereItIs) {
  EXPECT_EQ(markdown_text("a|b<c>\n[x](y)"), "a\\|b&lt;c>\\\\n\\[x\\]\\(y\\)");
  EXPECT_EQ(markdown_code("a`b|c"), "``a`b\\|c``");
  EXPECT_EQ(markdown_code("`"), "`` ` ``");
  EXPECT_EQ(markdown_code(""), "");
  EXPECT_EQ(markdown_block("```\n\x1b[2J\n\tx", "python", 10),
            "````python\n```\n\\x1b[2J\n\tx\n````\n");
  EXPECT_EQ(markdown_block("a\nb\nc\nd", "", 2),
            "```\na\nb\n```\n\n2 more lines are in the file.\n");
}

}  // namespace
}  // namespace dynprof
