// Kernels compiled with Triton outside of torch's compiles: whose they are, how long callers waited, and in what.
#include "symbolizer/report/triton_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "symbolizer/report/report.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kPeriod = 10 * kMs;

class TritonRowsTest : public ::testing::Test {
 protected:
  // Called at a line of serve.py.
  StackId work(std::int32_t line, std::vector<FrameId> inside = {}) {
    std::vector<FrameId> frames = {
        fake.python("/home/me/serve.py", "main", 1, 3),
        fake.python("/home/me/serve.py", "answer", 20, line),
        fake.python("/v/site-packages/triton/runtime/jit.py", "JITFunction.run", 700, 740),
        fake.python("/v/site-packages/triton/compiler/compiler.py", "compile", 226, 300)};
    frames.insert(frames.end(), inside.begin(), inside.end());
    return fake.stack(frames);
  }
  FrameId backend(const char* function) {
    return fake.python("/v/site-packages/triton/backends/nvidia/compiler.py", function, 400, 410);
  }
  StackId launch() {
    return fake.stack(
        {fake.python("/home/me/serve.py", "main", 1, 3),
         fake.python("/v/site-packages/triton/runtime/jit.py", "JITFunction.run", 700, 780)});
  }
  void reading(const char* kernel, std::uint32_t compilation) {
    fake.edit_tables().triton_samples.push_back({.time_ns = fake.now(),
                                                 .thread = thread,
                                                 .compilation = compilation,
                                                 .kernel = fake.string(kernel)});
  }
  // Off the CPU for so long, from the last sample on.
  void wait(StackId stack, std::uint64_t ms) {
    Wait wait{.begin_ns = fake.now(), .span_ns = ms * kMs, .length_ns = ms * kMs};
    wait.cpu_ns = fake.now() - off_ns;
    off_ns += ms * kMs;
    wait.thread = thread;
    wait.stack = stack;
    wait.kind = stack == 0 ? WaitKind::kPreempted : WaitKind::kChild;
    fake.edit_tables().waits.push_back(wait);
    fake.pass_ms(ms);
  }
  std::vector<TritonRow> rows() {
    attribution.emplace(fake);
    analysis.emplace(*attribution);
    return triton_rows(*analysis);
  }

  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100);
  std::uint64_t off_ns = 0;
  std::optional<Attribution> attribution;
  std::optional<Analysis> analysis;
};

TEST_F(TritonRowsTest, ALaunchIsNoStall) {
  fake.sample(thread, launch(), 0, 0, 20);
  EXPECT_THAT(rows(), IsEmpty());
  EXPECT_THAT(render_report(*analysis, {}), Not(HasSubstr("Triton")));
}

TEST_F(TritonRowsTest, StagesOfACompilation) {
  reading("add_kernel", 1);
  fake.sample(thread, work(25), 0, 0, 3);
  fake.sample(thread, work(25, {backend("CUDABackend.make_llir")}), 0, 0, 4);
  wait(work(25, {backend("CUDABackend.make_cubin"),
                 fake.python("/usr/lib/python3.11/subprocess.py", "run", 500, 501)}),
       150);
  const std::vector<TritonRow> found = rows();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kernel, "add_kernel");
  EXPECT_EQ(found[0].pid, 100);
  EXPECT_EQ(attribution->frames()[found[0].caller].function, "answer");
  EXPECT_EQ(attribution->frames()[found[0].caller].line, 25);
  EXPECT_EQ(found[0].compilations, 1u);
  EXPECT_EQ(found[0].of(TritonStage::kPasses), 3 * kPeriod);
  EXPECT_EQ(found[0].of(TritonStage::kLlvm), 4 * kPeriod);
  EXPECT_EQ(found[0].of(TritonStage::kAssembler), 150 * kMs);
  EXPECT_EQ(found[0].stall_ns, 7 * kPeriod + 150 * kMs);
  EXPECT_EQ(found[0].longest_ns, found[0].stall_ns);
}

TEST_F(TritonRowsTest, TimePreemptedInsideACompilationIsPartOfTheStall) {
  reading("add_kernel", 1);
  fake.sample(thread, work(25), 0, 0, 3);
  wait(0, 80);
  wait(0, 20);
  fake.sample(thread, work(25, {backend("CUDABackend.make_llir")}), 0, 0, 2);
  const std::vector<TritonRow> found = rows();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].of(TritonStage::kPasses), 3 * kPeriod + 100 * kMs);
  EXPECT_EQ(found[0].stall_ns, 5 * kPeriod + 100 * kMs);
  EXPECT_EQ(found[0].longest_ns, found[0].stall_ns);
}

// Before it, behind it, where something else runs on either side, between two lines, and where time is missing.
TEST_F(TritonRowsTest, TimePreemptedElsewhereIsNot) {
  wait(0, 20);
  fake.sample(thread, work(25), 0, 0, 1);
  wait(0, 20);
  fake.sample(thread, launch(), 0, 0, 1);
  wait(0, 20);
  fake.sample(thread, launch(), 0, 0, 1);
  wait(0, 20);
  fake.sample(thread, work(25), 0, 0, 1);
  wait(0, 20);
  fake.sample(thread, work(26), 0, 0, 1);
  wait(0, 20);
  fake.pass_ms(300);
  fake.sample(thread, work(26), 0, 0, 1);
  wait(0, 20);
  const std::vector<TritonRow> found = rows();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].stall_ns, 2 * kPeriod);
  EXPECT_EQ(found[1].stall_ns, 2 * kPeriod);
}

TEST_F(TritonRowsTest, CompilationsApartAreCountedAndTheLongestIsKept) {
  for (const std::uint32_t number : {1u, 2u, 3u}) {
    reading("add_kernel", number);
    fake.sample(thread, work(25), 0, 0, number);
    fake.sample(thread, launch(), 0, 0, 10);
  }
  const std::vector<TritonRow> found = rows();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].compilations, 3u);
  EXPECT_EQ(found[0].stall_ns, 6 * kPeriod);
  EXPECT_EQ(found[0].longest_ns, 3 * kPeriod);
}

TEST_F(TritonRowsTest, KernelsInARowAreToldApartByReadings) {
  reading("a_kernel", 1);
  fake.sample(thread, work(25), 0, 0, 5);
  reading("b_kernel", 2);
  fake.sample(thread, work(25), 0, 0, 7);
  const std::vector<TritonRow> found = rows();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kernel, "b_kernel");
  EXPECT_NEAR(found[0].stall_ns, 7 * kPeriod, kPeriod);
  EXPECT_NEAR(found[1].stall_ns, 5 * kPeriod, kPeriod);
}

TEST_F(TritonRowsTest, WithoutAReadingTheNameIsNotKnown) {
  fake.sample(thread, work(25), 0, 0, 5);
  fake.sample(thread, launch(), 0, 0, 10);
  fake.sample(thread, work(25), 0, 0, 5);
  const std::vector<TritonRow> found = rows();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kernel, "");
  EXPECT_EQ(found[0].compilations, 2u);
  EXPECT_THAT(render_report(*analysis, {}), HasSubstr("(not read)"));
}

// As of a kernel's first call: its binder is made, the compiler is imported, then it compiles.
TEST_F(TritonRowsTest, AStallBeforeTheFirstReadingIsOfTheSameCall) {
  fake.sample(thread, work(25), 0, 0, 1);
  fake.sample(thread, launch(), 0, 0, 10);
  reading("add_kernel", 1);
  fake.sample(thread, work(25), 0, 0, 3);
  const std::vector<TritonRow> found = rows();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kernel, "add_kernel");
  EXPECT_EQ(found[0].compilations, 1u);
  EXPECT_EQ(found[0].stall_ns, 4 * kPeriod);
  EXPECT_EQ(found[0].longest_ns, 3 * kPeriod);
}

TEST_F(TritonRowsTest, AStallLongBeforeOrOfAnotherLineIsNot) {
  fake.sample(thread, work(25), 0, 0, 1);
  fake.sample(thread, launch(), 0, 0, 110);
  fake.sample(thread, work(26), 0, 0, 2);
  fake.sample(thread, launch(), 0, 0, 10);
  reading("add_kernel", 1);
  fake.sample(thread, work(25), 0, 0, 3);
  const std::vector<TritonRow> found = rows();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].kernel, "add_kernel");
  EXPECT_EQ(found[0].stall_ns, 3 * kPeriod);
  EXPECT_EQ(found[1].kernel, "");
  EXPECT_EQ(found[2].kernel, "");
}

TEST_F(TritonRowsTest, AReadingOfAnotherThreadIsNotUsed) {
  const ThreadId other = fake.thread(100, 101);
  reading("add_kernel", 1);
  fake.sample(other, work(25), 0, 0, 5);
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows()[0].kernel, "");
}

TEST_F(TritonRowsTest, TuningRunsAndTheCompilationsInsideThem) {
  const FrameId bench =
      fake.python("/v/site-packages/triton/runtime/autotuner.py", "Autotuner._bench", 148, 180);
  const FrameId caller = fake.python("/home/me/serve.py", "answer", 20, 30);
  reading("softmax_kernel", 0);
  fake.sample(thread,
              fake.stack({caller, bench, fake.native("cuEventSynchronize", "/l/libcuda.so.1")}), 0,
              0, 6);
  reading("softmax_kernel", 1);
  fake.sample(thread,
              fake.stack({caller, bench,
                          fake.python("/v/site-packages/triton/compiler/compiler.py", "compile",
                                      226, 300)}),
              0, 0, 2);
  const std::vector<TritonRow> found = rows();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].of(TritonStage::kTuning), 6 * kPeriod);
  EXPECT_EQ(found[0].of(TritonStage::kPasses), 2 * kPeriod);
  EXPECT_EQ(found[0].compilations, 1u);
}

TEST_F(TritonRowsTest, AChildBeforeItsExecIsNotItsParent) {
  const ThreadId child = fake.thread(200, 200);
  fake.sample(child, work(25, {backend("CUDABackend.make_cubin")}), 0, 0, 2);
  fake.edit_tables().lives.push_back(
      {.time_ns = fake.now(), .pid = 200, .kind = LifeKind::kExec, .comm = fake.string("ptxas")});
  EXPECT_THAT(rows(), IsEmpty());
}

// As a kernel that Inductor tunes at its first run: its wrapper and torch are on the stack.
TEST_F(TritonRowsTest, TheCallerIsNeitherTorchNorGenerated) {
  fake.sample(
      thread,
      fake.stack(
          {fake.python("/home/me/serve.py", "answer", 20, 30),
           fake.python("/v/site-packages/torch/_dynamo/eval_frame.py", "compile_wrapper", 1, 2),
           fake.python("/tmp/torchinductor_me/ab/"
                       "cabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxy.py",
                       "call", 30, 31),
           fake.python("/v/site-packages/torch/_inductor/runtime/triton_heuristics.py",
                       "CachingAutotuner.benchmark_all_configs", 900, 910)}),
      0, 0, 5);
  const std::vector<TritonRow> found = rows();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(attribution->frames()[found[0].caller].function, "answer");
}

// Inside a compile they are its phases.
TEST_F(TritonRowsTest, CompilesOfTorchAreLeftOut) {
  const ContextId compile = fake.torch_context(fake.torch_state("0/0", 0, {"dynamo"}));
  fake.sample(thread, work(25), compile, 0, 5);
  EXPECT_THAT(rows(), IsEmpty());
}

TEST_F(TritonRowsTest, TheReportNamesTheWorstFirst) {
  reading("add_kernel", 1);
  fake.sample(thread, work(25), 0, 0, 30);
  fake.sample(thread, launch(), 0, 0, 10);
  reading("\x1b[31mevil", 2);
  fake.sample(thread, work(27), 0, 0, 5);
  (void)rows();
  const std::string text = render_report(*analysis, {});
  EXPECT_THAT(text, HasSubstr("2 kernels compiled or tuned outside of torch.compile"));
  EXPECT_THAT(text, HasSubstr("for add_kernel at serve.py:25"));
  EXPECT_THAT(text, HasSubstr("call each Triton kernel once before serving"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace dynprof
