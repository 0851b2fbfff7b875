// What the page of a compile says of running its kernels alone: a program where the wrapper is one, and a line for
// ncu for each Triton kernel that it launches.
#include "symbolizer/export/generated_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

using testing::HasSubstr;
using testing::Not;

// The parts of a wrapper of torch 2.13 that are looked at.
constexpr const char* kKernels = R"(# AOT ID: ['0_forward']
cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r'''
''')
triton_poi_fused_add_1 = async_compile.triton('triton_poi_fused_add_1', '''
import triton
''', device_str='cuda')
triton_never_2 = async_compile.triton('triton_never_2', '''
import triton
''', device_str='cuda')
def call(args):
    cpp_fused_relu_0(buf1)
    triton_poi_fused_add_1.run(buf2, 16, stream=stream0)
)";
constexpr const char* kArguments = R"(def get_args():
    pass
def benchmark_compiled_module(args, times=10, repeat=10):
    pass
)";

struct GeneratedPageTest : testing::Test {
  FakeRecording fake;
  std::vector<std::string> written;

  std::string page(const std::string& wrapper, bool truncated = false) {
    const nlohmann::ordered_json about{
        {"trace_id", "0/0"}, {"kind", "wrapper"},     {"name", "forward_wrapper.py"},
        {"origin", ""},      {"kernel", ""},          {"direction", "forward"},
        {"problem", ""},     {"truncated", truncated}};
    fake.fact(100, "generated", about.dump(), wrapper);
    const Attribution attribution(fake);
    const Generated generated(attribution);
    std::string text;
    for (const GeneratedPage& one : generated_pages(attribution, generated, {})) {
      written.push_back(one.stem + one.suffix);
      if (one.suffix == ".md") text = one.text;
    }
    return text;
  }
};

TEST_F(GeneratedPageTest, AWrapperIsRunAloneAndItsTritonKernelsUnderNcu) {
  const std::string text = page(std::string(kKernels) + kArguments);
  EXPECT_THAT(text,
              HasSubstr("To run it alone, with random inputs: `python3 forward_wrapper.py`\n"
                        "\nTo time a kernel of it:\n"
                        "\n```sh\n"
                        "python3 benchmark_kernel.py forward_wrapper.py cpp_fused_relu_0\n"
                        "python3 benchmark_kernel.py forward_wrapper.py triton_poi_fused_add_1\n"
                        "```\n"
                        "\nTo profile one with Nsight Compute:\n"
                        "\n```sh\n"
                        "ncu --kernel-name triton_poi_fused_add_1 --launch-count 1 --set full "
                        "python3 benchmark_kernel.py forward_wrapper.py triton_poi_fused_add_1\n"
                        "```\n"));
}

TEST_F(GeneratedPageTest, TheProgramThatTimesKernelsIsBesideThem) {
  page(std::string(kKernels) + kArguments);
  EXPECT_EQ(written, (std::vector<std::string>{"benchmark_kernel.py", "forward_wrapper_plan.json",
                                               "index.md"}));
}

TEST_F(GeneratedPageTest, WithoutArgumentsItIsNoProgram) {
  const std::string text = page(kKernels);
  EXPECT_THAT(text, HasSubstr("## Kernels of"));
  EXPECT_THAT(text, Not(HasSubstr("python3")));
  EXPECT_EQ(written, (std::vector<std::string>{"forward_wrapper_plan.json", "index.md"}));
}

TEST_F(GeneratedPageTest, APartOfAWrapperIsNoProgram) {
  EXPECT_THAT(page(std::string(kKernels) + kArguments, true), Not(HasSubstr("python3")));
}

// What is in it would be a command of whoever copies the line.
TEST_F(GeneratedPageTest, ANameThatIsNoIdentifierIsInNoCommand) {
  std::string wrapper = std::string(kKernels) + kArguments;
  const std::string name = "triton_poi_fused_add_1";
  for (std::size_t at = 0; (at = wrapper.find(name, at)) != std::string::npos;)
    wrapper.replace(at, name.size(), "a;reboot");
  EXPECT_THAT(page(wrapper), Not(HasSubstr("ncu")));
}

}  // namespace
}  // namespace dynprof
