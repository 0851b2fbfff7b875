// Which lines a generated kernel is made from. The texts are as torch 2.13 writes them.
#include "symbolizer/attribution/kernel_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "symbolizer/attribution/graph_text.h"
#include "symbolizer/attribution/kernel_plan.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_gpu.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kWrapper = R"(# AOT ID: ['0_forward']
async_compile = AsyncCompile()

# kernel path: /c/ab/cab.py
# Topologically Sorted Source Nodes: [linear, relu], Original ATen: [aten.addmm, aten.relu]
# Source node to ATen node mapping:
#   linear => add_tensor
#   relu => relu, gt
# Graph fragment:
#   %add_tensor : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%mm), kwargs = {})
#   %x => %y
triton_poi_fused_addmm_relu_0 = async_compile.triton('triton_poi_fused_addmm_relu_0', '''
import triton
# Source node to ATen node mapping:
#   other => sub
''', device_str='cuda')

cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r'''
''')
)";

constexpr const char* kGraph = R"(class <lambda>(torch.nn.Module):
    def forward(self, primals_1: "f32[64, 32][32, 1]cpu"):
        # File: /home/me/model.py:41 in forward, code: h = torch.relu(self.a(x))
        add_tensor: "f32[8, 64][64, 1]cuda:0" = torch.ops.aten.add.Tensor(mm, primals_1);  mm = None
        relu = torch.ops.aten.relu.default(add_tensor);  add_tensor = None

        # No stacktrace found for following nodes
        nowhere: "f32[8]" = torch.ops.aten.neg.default(relu)

        # File: /home/me/a in b.py:43 in helper, code: return x > 0
        gt: "b8[8, 64]" = torch.ops.aten.gt.Scalar(relu, 0);  relu = None
        return (gt,)
)";

// Of the captured graph, as user/generated/fx_nodes.h writes it.
constexpr const char* kCaptured = R"(def forward(self, L_x_):
    # Module: L['self'].layers.0.a
    # File: /home/me/model.py:41 in forward, code: h = torch.relu(self.a(x))
    linear = torch._C._nn.linear(l_x_, weight)

    # Module: L['self'].layers.0
    # File: /home/me/model.py:41 in forward, code: h = torch.relu(self.a(x))
    relu = torch.relu(linear)

    # Module: L['self'].layers.1
    # File: /home/me/model.py:60 in forward, code: h + 1
    add = relu + 1
    return (add,)
)";

TEST(GraphText, ALineIsOfTheNodesBelowItAlone) {
  for (const GraphNode& node : read_graph(kGraph, 100)) {
    if (node.name == "relu") {
      EXPECT_EQ(node.line, "/home/me/model.py:41 in forward");
    }
    if (node.name == "nowhere") {
      EXPECT_EQ(node.line, "");
    }
  }
}

TEST(GraphText, OtherFactsMayComeBeforeTheLine) {
  const auto line = [](const std::string& comment) {
    const auto nodes = read_graph("        # " + comment + "\n        neg = torch.neg(x)\n", 100);
    return nodes.size() == 1 ? nodes[0].line : "";
  };
  const std::string place = "File: /tmp/m.py:3 in forward, code: y = -x";
  EXPECT_EQ(line(place), "/tmp/m.py:3 in forward");
  EXPECT_EQ(line("Backward of forward node: " + place), "/tmp/m.py:3 in forward");
  EXPECT_EQ(line("Annotation: {'stage': 0} recompute: MUST_SAVE " + place),
            "/tmp/m.py:3 in forward");
  EXPECT_EQ(line("No stacktrace found for following nodes"), "");
}

TEST(KernelPlan, CommentsInsideAKernelAreNotOfTheNextOne) {
  const KernelPlan plan = read_kernel_plan(kWrapper, 100);
  ASSERT_EQ(plan.kernels.size(), 2u);
  EXPECT_THAT(plan.kernels[0].nodes, ElementsAre("add_tensor", "relu", "gt"));
  EXPECT_THAT(plan.kernels[1].nodes, IsEmpty());
}

TEST(KernelPlan, ModulesAreOfTheNodesThatInductorNamesElseOfTheGraphs) {
  KernelPlan plan;
  plan.kernels.resize(4);
  plan.kernels[0].sources = {"linear", "relu", "unknown"};
  plan.kernels[1].nodes = {"add", "unknown"};
  plan.kernels[2].nodes = {"unknown"};
  plan.kernels[3].language = "extern";
  plan.kernels[3].sources = {"linear", "relu"};
  plan.kernels[3].nodes = {"add"};
  constexpr const char* kAdd = R"(def forward(self, primals_1: "f32[2]"):
    # File: /home/me/model.py:60 in forward, code: h + 1
    add: "f32[2]" = torch.ops.aten.add.Tensor(primals_1, 1)
)";
  add_modules(plan, read_graph(kAdd, 100), read_graph(kCaptured, 100));
  EXPECT_THAT(plan.kernels[0].modules, ElementsAre("L['self'].layers.0.a", "L['self'].layers.0"));
  EXPECT_THAT(plan.kernels[1].modules, ElementsAre("L['self'].layers.1"));
  EXPECT_THAT(plan.kernels[2].modules, IsEmpty());
  EXPECT_THAT(plan.kernels[3].modules, ElementsAre("L['self'].layers.1"));
}

struct KernelSourcesTest : testing::Test {
  FakeRecording fake;
  FakeTorch torch{fake};

  void generated(const std::string& kind, const std::string& name, const std::string& origin,
                 const std::string& kernel, const std::string& body) {
    const nlohmann::ordered_json about{
        {"trace_id", "0/0"}, {"kind", kind},           {"name", name},  {"origin", origin},
        {"kernel", kernel},  {"direction", "forward"}, {"problem", ""}, {"truncated", false}};
    fake.fact(100, "generated", about.dump(), body);
  }
};

TEST_F(KernelSourcesTest, KernelsByNameAndLineInTheReport) {
  generated("wrapper", "forward_wrapper.py", "/c/wr/cwrap.py", "", kWrapper);
  generated("fx_graph", "forward_post_grad_graph.py", "", "", kGraph);
  generated("fx_graph", "captured_graph.py", "<eval_with_key>.1", "", "def forward(self): pass");
  generated("fx_graph", "captured_graph_nodes.py", "GraphModule._graph", "", kCaptured);
  generated("kernel_source", "forward_triton_poi_fused_addmm_relu_0.cpp", "/c/ab/cab.main.cpp",
            "triton_poi_fused_addmm_relu_0", "");
  generated("kernel_source", "forward_cpp_fused_relu_0.cpp", "/c/ni/cni.main.cpp",
            "cpp_fused_relu_0", "");
  const ThreadId thread = fake.thread(100, 100);
  const FrameId helper = fake.native("at::vec::store", "/usr/lib/libtorch.so");
  fake.sample(thread,
              fake.stack({torch.module(), fake.native("kernel", "/c/ab/cab.main.so"), helper}), 0,
              0, 30);
  fake.sample(thread, fake.stack({torch.module(), fake.native("kernel", "/c/ni/cni.main.so")}), 0,
              0, 10);
  fake.sample(thread, torch.running(), 0, 0, 5);
  const Attribution attribution(fake);
  const KernelSources sources(fake.tables(), attribution.generated_copies());
  const KernelSource& source =
      sources.of(100, parse_trace_id("0/0"), false, "triton_poi_fused_addmm_relu_0");
  EXPECT_THAT(source.lines,
              ElementsAre("/home/me/model.py:41 in forward", "/home/me/a in b.py:43 in helper"));
  EXPECT_THAT(source.modules, ElementsAre("self.layers.0.a", "self.layers.0"));
  EXPECT_THAT(sources.of(100, parse_trace_id("0/0"), true, "triton_poi_fused_addmm_relu_0").lines,
              IsEmpty());
  const Analysis analysis(attribution);
  const std::string report = render_report(analysis, {});
  EXPECT_THAT(report, HasSubstr("  CPU  0/0         triton_poi_fused_addmm_relu_0           "
                                "model.py:41, a in b.py:43\n"
                                "                            in self.layers.0.a and 1 more\n"));
  EXPECT_THAT(report, HasSubstr("  CPU  0/0         cpp_fused_relu_0                        -\n"));
}

TEST_F(KernelSourcesTest, OnTheGpuAModuleWithoutALineIsEnough) {
  constexpr const char* kWithoutLines = R"(def forward(self, primals_1: "f32[2]"):
    # No stacktrace found for following nodes
    add_tensor: "f32[2]" = torch.ops.aten.add.Tensor(primals_1, 1)
)";
  generated("wrapper", "forward_wrapper.py", "/c/wr/cwrap.py", "", kWrapper);
  generated("fx_graph", "forward_post_grad_graph.py", "", "", kWithoutLines);
  generated("fx_graph", "captured_graph_nodes.py", "GraphModule._graph", "", kCaptured);
  const ThreadId thread = fake.thread(100, 100);
  run(fake, thread, "Torch-Compiled Region: 0/0", 100, 200);
  FakeGpu gpu(fake);
  gpu.call(thread, 1, 110, 5);
  gpu.kernel(thread, 1, 120, 30, "triton_poi_fused_addmm_relu_0");
  gpu.call(thread, 2, 130, 5);
  gpu.kernel(thread, 2, 160, 30, "sgemm");
  const Attribution attribution(fake);
  const std::string report = render_report(Analysis(attribution), {});
  EXPECT_THAT(report, HasSubstr("  GPU  0/0         triton_poi_fused_addmm_relu_0           -\n"
                                "                            in self.layers.0.a and 1 more\n"));
  EXPECT_THAT(report, Not(HasSubstr("GPU  0/0         sgemm")));
}

TEST_F(KernelSourcesTest, NothingWithoutTimeInAKernel) {
  generated("kernel_source", "forward_cpp_fused_relu_0.cpp", "/c/ni/cni.main.cpp",
            "cpp_fused_relu_0", "");
  fake.sample(fake.thread(100, 100), torch.running());
  const Attribution attribution(fake);
  const Analysis analysis(attribution);
  EXPECT_THAT(render_report(analysis, {}), Not(HasSubstr("Generated kernels")));
}

}  // namespace
}  // namespace dynprof
