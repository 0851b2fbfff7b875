// Calls of --sampled-launch-stacks: most of them are known from the library's record of their end alone, without a stack.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "symbolizer/attribution/gpu_summary.h"
#include "tests/unit/fake_gpu.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

const std::string kWrapper = "/tmp/torchinductor_me/ab/cabc.py";
const std::string kOther = "/tmp/torchinductor_me/cd/ccde.py";

TEST(GpuSampledLaunches, ACallWithoutAStackBelongsToTheCompileAroundIt) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3"), other = fake.thread(100, 101, "worker");
  FakeEdges edges(fake, thread);
  fake.pass_ms(1);
  edges.forward("2/0");  // from 1 ms to 101 ms
  FakeGpu gpu(fake);
  gpu.finished(thread, 1, 50'000, 1);
  gpu.finished(other, 2, 50'000, 1);
  gpu.finished(thread, 3, 150'000, 1);
  Attribution attribution(fake);
  GpuWork work(attribution);
  ASSERT_EQ(work.calls().size(), 3u);
  for (const GpuCall& call : work.calls()) {
    EXPECT_EQ(call.compiling, call.correlation == 1) << call.correlation;
    EXPECT_EQ(is_valid(call.id), call.correlation == 1) << call.correlation;
  }
  EXPECT_EQ(work.calls()[0].id.text(), "2/0");
  EXPECT_EQ(summarize(work).calls_without_stack, 3u);
}

TEST(GpuSampledLaunches, ACallWithoutAStackHasTheIdThatOthersOfItsRunHave) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  copy_wrapper(fake, kWrapper, "3/1", "backward", "def call(args):\n    triton_red_0.run(args)\n");
  copy_wrapper(fake, kOther, "4/0", "forward", "def call(args):\n    triton_red_1.run(args)\n");
  run(fake, thread, "CompiledFunctionBackward", 100, 200);
  run(fake, thread, "CompiledFunctionBackward", 300, 400);
  run(fake, thread, "CompiledFunctionBackward", 500, 600);
  const StackId one = fake.stack({fake.python(kWrapper, "call", 1, 2)});
  const StackId two = fake.stack({fake.python(kOther, "call", 1, 2)});
  FakeGpu gpu(fake);
  gpu.finished(thread, 1, 110, 1);
  gpu.call(thread, 2, 120, 1, one);
  gpu.finished(thread, 3, 310, 1);  // no call of that run has a stack
  gpu.call(thread, 4, 510, 1, one);
  gpu.call(thread, 5, 520, 1, two);
  gpu.finished(thread, 6, 530, 1);  // they disagree
  gpu.call(thread, 7, 130, 1);      // it was asked for its stack: it has none
  Attribution attribution(fake);
  GpuWork work(attribution);
  std::map<std::uint32_t, std::string> ids;
  for (const GpuCall& call : work.calls())
    ids[call.correlation] = is_valid(call.id) ? call.id.text() : "-";
  EXPECT_EQ(ids,
            (std::map<std::uint32_t, std::string>{
                {1, "3/1"}, {2, "3/1"}, {3, "-"}, {4, "3/1"}, {5, "4/0"}, {6, "-"}, {7, "-"}}));
}

// In a container the process numbers its threads in another way: calls with a stack have both numbers.
TEST(GpuSampledLaunches, ACallWithoutAStackHasTheThreadOfThoseWithTheSameNumber) {
  FakeRecording fake;
  ThreadId one = fake.thread(100, 100, "python3"), two = fake.thread(100, 107, "worker");
  FakeGpu gpu(fake);
  gpu.launch(one, 1, 10);
  gpu.finished(one, 1, 10, 1).thread = 1;
  gpu.launch(two, 2, 20);
  gpu.finished(two, 2, 20, 1).thread = 8;
  gpu.finished(one, 3, 30, 1).thread = 1;
  gpu.finished(two, 4, 40, 1).thread = 8;
  gpu.finished(two, 5, 50, 1).thread = 9;
  Attribution attribution(fake);
  GpuWork work(attribution);
  std::map<std::uint32_t, ThreadId> threads;
  for (const GpuCall& call : work.calls()) threads[call.correlation] = call.thread;
  EXPECT_EQ(threads, (std::map<std::uint32_t, ThreadId>{
                         {1, one}, {2, two}, {3, one}, {4, two}, {5, kNoThread}}));
}

TEST(GpuSampledLaunches, AKernelIsShownWithTheLineOfALaunchThatHasAStack) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  const StackId stack = fake.stack({fake.python("train.py", "main", 10, 12)});
  FakeGpu gpu(fake);
  gpu.finished(thread, 1, 10, 1);
  gpu.kernel(thread, 1, 20, 50);  // the longest
  gpu.call(thread, 2, 100, 1, stack);
  gpu.kernel(thread, 2, 110, 10);
  Attribution attribution(fake);
  const GpuSummary summary = summarize(GpuWork(attribution));
  ASSERT_EQ(summary.kernels.size(), 1u);
  EXPECT_EQ(summary.kernels[0].stack, stack);
}

}  // namespace
}  // namespace dynprof
