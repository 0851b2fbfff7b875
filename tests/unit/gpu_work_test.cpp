// Kernels find their calls, calls their compiled regions; what that adds up to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "symbolizer/attribution/driver_kernel_names.h"
#include "symbolizer/attribution/gpu_names.h"
#include "symbolizer/attribution/gpu_summary.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/export/gpu_json.h"
#include "symbolizer/export/gpu_occupancy.h"
#include "symbolizer/profile/analysis.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_gpu.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kWrapper = "/tmp/torchinductor_me/ab/cabc.py";

TEST(GpuWork, NothingWithoutRecords) {
  FakeRecording fake;
  Attribution attribution(fake);
  EXPECT_TRUE(GpuWork(attribution).empty());
  EXPECT_TRUE(gpu_json(Analysis(attribution)).is_null());
}

TEST(GpuWork, KernelsFindTheCallOfTheirProcess) {
  FakeRecording fake;
  ThreadId one = fake.thread(100, 100, "python3"), other = fake.thread(200, 200, "python3");
  StackId stack = fake.stack({fake.python("train.py", "main", 10, 12)});
  FakeGpu gpu(fake);
  gpu.call(one, 5, 100, 3, stack);
  gpu.call(other, 5, 50, 3);
  gpu.kernel(one, 5, 200, 10);
  gpu.kernel(other, 5, 150, 10);
  gpu.kernel(one, 6, 300, 10);  // its call began before
  Attribution attribution(fake);
  GpuWork work(attribution);
  ASSERT_EQ(work.calls().size(), 2u);
  ASSERT_EQ(work.items().size(), 3u);
  EXPECT_EQ(work.calls()[0].pid, 200);
  EXPECT_EQ(work.calls()[1].stack, stack);
  EXPECT_EQ(work.items()[0].call, 0u);
  EXPECT_EQ(work.items()[1].call, 1u);
  EXPECT_EQ(work.items()[2].call, kNoIndex);
  EXPECT_EQ(work.orphans(), 1u);
}

TEST(GpuWork, AGraphIsOneCallAndManyKernels) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  FakeGpu gpu(fake);
  gpu.call(thread, 9, 10, 2, 0, kGraphLaunch);
  for (std::uint64_t i = 0; i < 4; ++i) gpu.kernel(thread, 9, 20 + 10 * i, 5);
  Attribution attribution(fake);
  GpuWork work(attribution);
  ASSERT_EQ(work.calls().size(), 1u);
  EXPECT_EQ(work.calls()[0].works, 4u);
  EXPECT_EQ(gpu_call_name(work.calls()[0].call), "cudaGraphLaunch");
  EXPECT_EQ(summarize(work).graph_launches, 1u);
}

TEST(GpuWork, ACallWhoseLaunchWasLostIsThereWithoutAStack) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 101, "python3");
  FakeGpu gpu(fake);
  gpu.call(thread, 3, 10, 2);
  fake.edit_tables().gpu_launches.clear();
  Attribution attribution(fake);
  GpuWork work(attribution);
  ASSERT_EQ(work.calls().size(), 1u);
  EXPECT_FALSE(work.calls()[0].announced);
  EXPECT_EQ(work.calls()[0].thread, thread);
  EXPECT_EQ(work.calls()[0].end_ns, gpu.time(12));
}

TEST(GpuWork, CallsBelongToTheInnermostRunOfTheirThread) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3"), other = fake.thread(100, 101, "worker");
  run(fake, thread, "Torch-Compiled Region: 0/0", 100, 500);
  run(fake, thread, "Torch-Compiled Region: 1/0", 200, 300);
  FakeGpu gpu(fake);
  for (auto [correlation, at] :
       {std::pair(1u, 50u), {2u, 150u}, {3u, 250u}, {4u, 350u}, {5u, 600u}})
    gpu.call(thread, correlation, at, 1);
  gpu.call(other, 6, 250, 1);
  Attribution attribution(fake);
  GpuWork work(attribution);
  std::map<std::uint32_t, std::string> ids;
  for (const GpuCall& call : work.calls())
    ids[call.correlation] = is_valid(call.id) ? call.id.text() : "-";
  EXPECT_EQ(ids, (std::map<std::uint32_t, std::string>{
                     {1, "-"}, {2, "0/0"}, {3, "1/0"}, {4, "0/0"}, {5, "-"}, {6, "-"}}));
}

// torch before 2.13 does not say which compile a backward out of a cache is of.
TEST(GpuWork, InARunWithoutAnIdAGeneratedFileOnTheStackHasIt) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  copy_wrapper(fake, kWrapper, "3/1", "backward", "def call(args):\n    triton_red_0.run(args)\n");
  run(fake, thread, "CompiledFunctionBackward", 100, 500);
  run(fake, thread, "CompiledFunctionBackward 0/0", 600, 700);
  const StackId generated = fake.stack({fake.python(kWrapper, "call", 1, 2)});
  FakeGpu gpu(fake);
  gpu.call(thread, 1, 200, 1, generated);
  gpu.call(thread, 2, 300, 1);
  gpu.call(thread, 3, 650, 1, generated);
  Attribution attribution(fake);
  GpuWork work(attribution);
  EXPECT_EQ(work.calls()[0].id.text(), "3/1");
  EXPECT_TRUE(work.calls()[0].backward);
  EXPECT_FALSE(is_valid(work.calls()[1].id));
  EXPECT_EQ(work.calls()[2].id.text(), "0/0") << "a run that has an id is believed";
}

TEST(GpuWork, ACallWhileCompilingBelongsToTheCompile) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  run(fake, thread, "Torch-Compiled Region: 0/0", 100, 500);
  ContextId compiling = fake.torch_context(fake.torch_state("2/0", 0));
  FakeGpu gpu(fake);
  gpu.call(thread, 1, 150, 1, 0, kLaunchKernel, compiling);
  Attribution attribution(fake);
  GpuWork work(attribution);
  EXPECT_EQ(work.calls()[0].id.text(), "2/0");
  EXPECT_TRUE(work.calls()[0].compiling);
  EXPECT_TRUE(summarize(work).regions.empty()) << "autotuning is no run of the region";
}

TEST(GpuSummary, GapsAndIdleOfARegion) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  run(fake, thread, "Torch-Compiled Region: 0/0", 100, 200);
  run(fake, thread, "Torch-Compiled Region: 0/0", 1000, 1100);
  FakeGpu gpu(fake);
  gpu.call(thread, 1, 110, 5);
  gpu.call(thread, 2, 130, 5);  // 15 us after the first ended
  gpu.kernel(thread, 1, 120, 10);
  gpu.kernel(thread, 2, 150, 10);  // idle from 130 to 150
  gpu.call(thread, 3, 1010, 4);
  gpu.kernel(thread, 3, 1020, 30);
  gpu.call(thread, 4, 140, 2);  // of no region's kernel, but the GPU is not idle meanwhile
  gpu.kernel(thread, 4, 135, 5, "_Z4nodePf");
  Attribution attribution(fake);
  GpuWork work(attribution);
  GpuSummary summary = summarize(work);
  ASSERT_EQ(summary.regions.size(), 1u);
  const GpuRegionRow& row = summary.regions[0];
  EXPECT_EQ(row.id.text(), "0/0");
  EXPECT_EQ(row.runs, 2u);
  EXPECT_EQ(row.launches, 4u);
  EXPECT_EQ(row.launch_ns, 16 * kUs);
  EXPECT_EQ(row.gap_ns, (15 + 5) * kUs);
  EXPECT_EQ(row.work_ns, 55 * kUs);
  EXPECT_EQ(row.idle_ns, 15 * kUs);
  EXPECT_EQ(row.late_ns, 5 * kUs) << "until that of no region";
  ASSERT_EQ(summary.kernels.size(), 2u);
  EXPECT_EQ(summary.kernels[0].total_ns, 50 * kUs);
  EXPECT_EQ(summary.kernels[0].calls, 3u);
}

TEST(GpuLoad, AGapIsLateWhereTheNextWorkHadNotBeenLaunched) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3"), other = fake.thread(100, 101, "other");
  FakeGpu gpu(fake);
  gpu.call(thread, 1, 0, 2);
  gpu.call(thread, 2, 5, 2);
  gpu.call(other, 3, 60, 2);
  gpu.kernel(thread, 1, 10, 10);
  gpu.kernel(thread, 2, 25, 15);   // it was launched before the gap of 5 us began
  gpu.kernel(other, 3, 70, 30);    // only 20 us after the gap began
  gpu.kernel(thread, 1, 80, 10);   // inside another
  gpu.kernel(thread, 9, 150, 10);  // by a call that is not in the recording
  Attribution attribution(fake);
  const std::vector<GpuLoad> loads = gpu_loads(GpuWork(attribution));
  ASSERT_EQ(loads.size(), 1u);
  const GpuLoad& load = loads[0];
  EXPECT_EQ(load.pid, 100);
  EXPECT_EQ(load.times.busy_ns, (10 + 15 + 30 + 10) * kUs);
  EXPECT_EQ(load.times.idle_ns, (5 + 30 + 50) * kUs);
  EXPECT_EQ(load.times.late_ns, 30 * kUs);
  ASSERT_EQ(load.gaps.size(), 3u);
  EXPECT_FALSE(load.gaps[0].late());
  EXPECT_TRUE(load.gaps[1].late());
  EXPECT_EQ(load.gaps[1].thread, other);
  EXPECT_FALSE(load.gaps[2].late()) << "when it was launched is not known";
  const GpuTimes part = load.idle_in(gpu.time(50), gpu.time(120));
  EXPECT_EQ(part.idle_ns, (20 + 20) * kUs);
  EXPECT_EQ(part.late_ns, 20 * kUs);
  EXPECT_EQ(load.idle_in(gpu.time(0), gpu.time(10)).idle_ns, 0u);
  EXPECT_EQ(load.idle_in(gpu.time(200), gpu.time(300)).idle_ns, 0u);
}

// A kernel of 1 ms every 10 ms, launched 1 ms before it runs, and what its thread did in between.
TEST(GpuVerdict, ACpuBoundJobNamesTheLines) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3"), other = fake.thread(100, 101, "other");
  const StackId slow = fake.stack({fake.python("/home/me/train.py", "step", 10, 12)});
  const StackId loads = fake.stack({fake.python("/home/me/data.py", "load", 20, 25)});
  FakeGpu gpu(fake);
  for (std::uint32_t i = 0; i < 20; ++i) {
    gpu.call(thread, i, 10'000 * i, 10);
    gpu.kernel(thread, i, 10'000 * i + 1000, 1000);
    fake.sample_at(gpu.time(10'000 * i + 1500), thread, loads);  // the GPU is busy
    fake.sample_at(gpu.time(10'000 * i + 5000), thread, i % 4 == 0 ? loads : slow);
    fake.sample_at(gpu.time(10'000 * i + 6000), other, loads);  // it launches nothing
  }
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  const std::string report = render_report(analysis, {});
  EXPECT_THAT(report,
              HasSubstr("CPU-bound: idle 90 % of 0.19 s, 100 % of that before the next launch; "
                        "meanwhile at\n                 train.py:12 74 %, data.py:25 26 %"));
}

// Of kernels of this length, one every 10 ms, all of them launched at the beginning.
std::string report_of_queued_kernels(std::uint64_t kernel_us) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  FakeGpu gpu(fake);
  for (std::uint32_t i = 0; i < 20; ++i) {
    gpu.call(thread, i, 100 * i, 10);
    gpu.kernel(thread, i, 10'000 * i + 5000, kernel_us);
  }
  Attribution attribution(fake);
  return render_report(Analysis(attribution), {});
}

TEST(GpuVerdict, AGpuBoundJob) {
  EXPECT_THAT(report_of_queued_kernels(9900), HasSubstr("GPU-bound: busy 99 % of 0.20 s"));
}

TEST(GpuVerdict, WorkThatWaitsThoughItWasLaunchedIsNotTheCpus) {
  EXPECT_THAT(
      report_of_queued_kernels(2000),
      HasSubstr("idle 79 % of 0.19 s, 0 % of that before the next launch, the rest before"));
}

TEST(GpuReport, SaysWhatWasSeenWithoutTheLibrary) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  FakeGpu gpu(fake);
  gpu.launch(thread, 0, 10, 0, DYNPROF_GPU_CALL(DYNPROF_GPU_DRIVER, 307), 0, kGpuCallBare);
  gpu.launch(thread, 0, 20, 0, DYNPROF_GPU_CALL(DYNPROF_GPU_DRIVER, 307), 0, kGpuCallBare);
  Attribution attribution(fake);
  EXPECT_EQ(GpuWork(attribution).calls().size(), 2u) << "they are two, though without an id";
  const Analysis analysis(attribution);
  std::string report = render_report(analysis, {});
  EXPECT_THAT(report, HasSubstr("2 CUDA calls were seen without libdynprof_cupti.so"));
  EXPECT_THAT(report, Not(HasSubstr("Launch overhead")));
}

TEST(GpuNames, OfTheLineThatLaunches) {
  EXPECT_EQ(launched_on_line("    triton_poi_fused_sin_0.run(arg0_1, buf0, 1024, stream=stream0)"),
            "triton_poi_fused_sin_0");
  EXPECT_EQ(launched_on_line("self.kernel.run(x)"), "kernel");
  for (const char* other : {"", ".run(", "x = call(args)", "0.run(1)", "f().run(", "a.runs(b)"})
    EXPECT_EQ(launched_on_line(other), "") << other;
  EXPECT_EQ(launched_on_line(std::string(5000, 'x') + ".run("), "");
  EXPECT_EQ(kernel_of_stub("__device_stub__Z5plainPf"), "Z5plainPf");
  EXPECT_EQ(kernel_of_stub("plain(float*)"), "plain(float*)");
}

// Without the library a kernel's name is the symbol of the function that stands for it, or on the line
// of generated code that launched it.
TEST(GpuNames, OfBareLaunches) {
  constexpr std::uint32_t kDriverLaunch = DYNPROF_GPU_CALL(DYNPROF_GPU_DRIVER, 307);
  constexpr std::uint32_t kDriverCopy = DYNPROF_GPU_CALL(DYNPROF_GPU_DRIVER, 306);
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  copy_wrapper(fake, kWrapper, "0/0", "forward",
               "def call(args):\n    first = args\n    triton_red_0.run(first, stream=stream0)\n");
  FrameId main = fake.python("/home/me/train.py", "main", 10, 12);
  StackId generated = fake.stack({main, fake.python(kWrapper, "call", 1, 3),
                                  fake.python("/t/triton_heuristics.py", "run", 5, 9)});
  StackId elsewhere = fake.stack({main, fake.python(kWrapper, "call", 1, 2)});
  StackId stub = fake.stack({main, fake.native("plain(float*)", "/home/me/kernels.so", 4096)});
  StackId opaque = fake.stack({main, fake.native("", "[unmapped]")});
  FakeGpu gpu(fake);
  constexpr std::uint8_t kStub = kGpuCallBare | kGpuCallStub;
  gpu.launch(thread, 0, 10, generated, kDriverLaunch, 0, kGpuCallBare);
  gpu.launch(thread, 0, 20, elsewhere, kDriverLaunch, 0, kGpuCallBare);
  gpu.launch(thread, 0, 30, stub, kDriverLaunch, 0, kStub);
  gpu.launch(thread, 0, 40, opaque, kDriverLaunch, 0, kStub);
  gpu.launch(thread, 0, 50, generated, kDriverCopy, 0, kGpuCallBare);
  gpu.launch(thread, 0, 60, 0, kDriverLaunch, 0, kStub);
  constexpr std::uint8_t kCaller = kGpuCallBare | kGpuCallCaller;
  const FrameId cublas = fake.native("gemm", "/opt/venv/lib/libcublasLt.so.12", 4096);
  gpu.launch(thread, 0, 70, fake.stack({main, cublas}), kDriverLaunch, 0, kCaller);
  gpu.launch(thread, 0, 80, opaque, kDriverLaunch, 0, kCaller);
  Attribution attribution(fake);
  GpuWork work(attribution);
  std::vector<std::string> names;
  for (const GpuCall& call : work.calls()) names.emplace_back(call.kernel);
  EXPECT_EQ(names,
            (std::vector<std::string>{"triton_red_0", "", "plain(float*)", "", "", "", "", ""}));
  EXPECT_EQ(work.calls()[2].stack, fake.stack({main})) << "the stub is no frame of the stack";
  EXPECT_EQ(work.calls()[6].stack, fake.stack({main})) << "nor is the code that calls the driver";
  EXPECT_EQ(work.calls()[6].caller, "libcublasLt.so.12");
  EXPECT_EQ(work.calls()[7].caller, "") << "no file";
  EXPECT_EQ(work.calls()[0].id.text(), "0/0");

  const Analysis analysis(attribution);
  const std::string report = render_report(analysis, {});
  EXPECT_THAT(report, HasSubstr("        1  0/0        triton_red_0 "));
  EXPECT_THAT(report, HasSubstr("        1  -          plain(float*) "));
  EXPECT_THAT(report, HasSubstr("(cuLaunchKernel)"));
  EXPECT_THAT(report, HasSubstr("        1  -          (launched by libcublasLt.so.12) "));
}

TEST(GpuNames, WithoutWhatACompilerMayWriteInTwoWays) {
  for (const auto& [name, base] : std::initializer_list<std::pair<const char*, const char*>>{
           {"plain(float*)", "plain"},
           {"sm90_gemm", "sm90_gemm"},
           {"void cublas::gemm<float, (anonymous namespace)::Op<3> >(float*, int)", "gemm"},
           {"void at::native::(anonymous namespace)::apply<int>(int)", "apply"},
           {"", ""},
           {"<>", ""},
           {"a<b", "a"},
           {"((((", ""}})
    EXPECT_EQ(kernel_base_name(name), base) << name;
  EXPECT_EQ(kernel_base_name(std::string(100'000, '<')), "");
}

TEST(GpuNames, OfADriverAreUsedWhereOthersAgree) {
  DriverKernelNames names;
  EXPECT_FALSE(names.usable(1)) << "nothing says what they are";
  names.compare_line(1, "triton_poi_0", "other_name");
  EXPECT_FALSE(names.usable(1));
  names.compare_line(1, "triton_poi_0", "triton_poi_0");
  EXPECT_TRUE(names.usable(1));
  EXPECT_FALSE(names.usable(2)) << "another process";
  names.compare(1, "wrong", "plain(float*)");
  EXPECT_FALSE(names.usable(1));
  for (int i = 0; i < 19; ++i) names.compare(1, "void f<int>(int)", "void f<(int)3>(int)");
  EXPECT_TRUE(names.usable(1)) << "a symbol of two";
}

// The frames of a launch: Python, the driver's name, and the function that stands for the kernel or the library.
TEST(GpuNames, OfTheDriverTakeThePlaceOfNone) {
  constexpr std::uint32_t kDriverLaunch = DYNPROF_GPU_CALL(DYNPROF_GPU_DRIVER, 307);
  FakeRecording fake;
  const ThreadId thread = fake.thread(100, 100, "python3");
  const FrameId main = fake.python("/home/me/train.py", "main", 10, 12);
  const FrameId plain = fake.native("plain(float*)", ""), gemm = fake.native("sm90_gemm", "");
  const FrameId stub = fake.native("plain(float*)", "/home/me/kernels.so", 4096);
  const FrameId cublas = fake.native("", "/opt/venv/lib/libcublasLt.so.12", 4096);
  FakeGpu gpu(fake);
  constexpr std::uint8_t kNamed = kGpuCallBare | kGpuCallNamed;
  gpu.launch(thread, 0, 10, fake.stack({main, gemm, cublas}), kDriverLaunch, 0,
             kNamed | kGpuCallCaller);
  gpu.launch(thread, 0, 20, fake.stack({main, plain, stub}), kDriverLaunch, 0,
             kNamed | kGpuCallStub);
  gpu.launch(thread, 0, 30, fake.stack({main, gemm}), kDriverLaunch, 0, kNamed);
  gpu.launch(thread, 0, 40, 0, kDriverLaunch, 0, kNamed);
  Attribution attribution(fake);
  const GpuWork work(attribution);
  std::vector<std::string> names;
  for (const GpuCall& call : work.calls()) names.emplace_back(call.kernel);
  EXPECT_EQ(names, (std::vector<std::string>{"sm90_gemm", "plain(float*)", "sm90_gemm", ""}));
  EXPECT_EQ(work.calls()[0].caller, "") << "it has a name";
  for (int i : {0, 1, 2}) EXPECT_EQ(work.calls()[i].stack, fake.stack({main}));
}

TEST(GpuReport, NamesAreMadeSafe) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  FakeGpu gpu(fake);
  gpu.call(thread, 1, 10, 1);
  gpu.kernel(thread, 1, 20, 5, "evil\x1b[2J\nname");
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  EXPECT_THAT(render_report(analysis, {}), Not(HasSubstr("\x1b")));
  EXPECT_NO_THROW(gpu_json(Analysis(attribution)).dump());
}

TEST(GpuOccupancy, OfAKernelThatFillsAnH200) {
  dynprof_gpu_device device = {};
  device.warp_size = 32;
  device.processors = 132;
  device.threads_per_processor = 2048;
  device.registers_per_processor = 65536;
  device.shared_per_processor = 233472;
  device.compute_major = 9;
  dynprof_gpu_kernel kernel = {};
  kernel.grid[0] = 132 * 16;
  kernel.grid[1] = kernel.grid[2] = kernel.block[1] = kernel.block[2] = 1;
  kernel.block[0] = 256;
  kernel.registers = 32;
  GpuOccupancy full = gpu_occupancy(kernel, &device);
  EXPECT_DOUBLE_EQ(full.blocks_per_processor, 16);
  EXPECT_DOUBLE_EQ(full.warps_per_processor, 128);
  EXPECT_EQ(full.percent, 100u);
  kernel.registers = 128;  // 2 blocks of 8 warps of 4,096 registers
  EXPECT_EQ(gpu_occupancy(kernel, &device).percent, 25u);
  kernel.grid[0] = 66;  // half a block each
  EXPECT_EQ(gpu_occupancy(kernel, &device).percent, 6u);
  EXPECT_EQ(gpu_occupancy(kernel, nullptr).percent, 0u);
  kernel.block[0] = -5;
  EXPECT_EQ(gpu_occupancy(kernel, &device).percent, 0u);
}

}  // namespace
}  // namespace dynprof
