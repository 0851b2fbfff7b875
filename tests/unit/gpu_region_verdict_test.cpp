// Whether the GPU waited for the CPU while a compiled region ran, and for which lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "symbolizer/export/gpu_json.h"
#include "symbolizer/profile/analysis.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_gpu.h"

namespace dynprof {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

// 0/0 runs for 8 ms every 10 ms, and launches a kernel of 0.5 ms after the first 6 ms. Then 1/0 runs 20 times for 0.1 ms, and
// launches a kernel of 9.9 ms each time; one of them ends every 10 ms.
struct GpuRegionVerdict : testing::Test {
  GpuRegionVerdict() {
    const StackId slow = fake.stack({fake.python("/home/me/train.py", "step", 10, 12)});
    const StackId loads = fake.stack({fake.python("/home/me/data.py", "load", 20, 25)});
    const StackId between = fake.stack({fake.python("/home/me/loop.py", "log", 30, 37)});
    for (std::uint32_t i = 0; i < 20; ++i) {
      const std::uint64_t at = 10'000 * i;
      run(fake, thread, "Torch-Compiled Region: 0/0", at, at + 8000);
      gpu.call(thread, i, at + 6000, 10);
      gpu.kernel(thread, i, at + 6500, 500);
      fake.sample_at(gpu.time(at + 3000), thread, i % 4 == 0 ? loads : slow);
      fake.sample_at(gpu.time(at + 6800), thread, loads);    // the GPU is busy
      fake.sample_at(gpu.time(at + 9000), thread, between);  // the region does not run
    }
    for (std::uint32_t i = 0; i < 20; ++i) {
      run(fake, thread, "Torch-Compiled Region: 1/0", 300'000 + 100 * i, 300'100 + 100 * i);
      gpu.call(thread, 100 + i, 300'010 + 100 * i, 10);
      gpu.kernel(thread, 100 + i, 305'000 + 10'000 * i, 9900);
    }
  }

  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  FakeGpu gpu{fake};
};

TEST_F(GpuRegionVerdict, IsBelowTheTable) {
  Attribution attribution(fake);
  const std::string report = render_report(Analysis(attribution), {});
  EXPECT_THAT(report,
              HasSubstr("# 1/0: GPU-bound: busy 97 % of 0.20 s\n"
                        "# 0/0: CPU-bound: idle 93 % of 0.15 s, 100 % of that before the "
                        "next launch; meanwhile at\n#   train.py:12 79 %, data.py:25 21 %\n"));
}

TEST_F(GpuRegionVerdict, IsInJson) {
  Attribution attribution(fake);
  const Json regions = gpu_json(Analysis(attribution))["regions"];
  ASSERT_EQ(regions.size(), 2u);
  Json gpu_bound = regions[0]["verdict"], cpu_bound = regions[1]["verdict"];
  EXPECT_EQ(gpu_bound["bound"], "gpu");
  EXPECT_EQ(gpu_bound["busy_s"], Json(0.198));
  EXPECT_EQ(gpu_bound["idle_s"], Json(0.0069)) << "runs that overlap are counted once";
  EXPECT_EQ(gpu_bound["late_s"], Json(0.005)) << "from the first run's begin to its kernel";
  EXPECT_EQ(gpu_bound["meanwhile"], Json::array());
  EXPECT_EQ(cpu_bound["bound"], "cpu");
  EXPECT_EQ(cpu_bound["busy_s"], Json(0.01));
  EXPECT_EQ(cpu_bound["idle_s"], Json(0.1435)) << "of the first run from its kernel on";
  EXPECT_EQ(cpu_bound["late_s"], Json(0.1435));
  const double period_s = static_cast<double>(fake.meta().period_ns) / 1e9;
  EXPECT_DOUBLE_EQ(cpu_bound["meanwhile_s"].get<double>(), 19 * period_s);
  ASSERT_EQ(cpu_bound["meanwhile"].size(), 2u);
  EXPECT_EQ(cpu_bound["meanwhile"][0]["line"], "train.py:12");
  EXPECT_DOUBLE_EQ(cpu_bound["meanwhile"][0]["total_s"].get<double>(), 15 * period_s);
  EXPECT_EQ(cpu_bound["meanwhile"][1]["line"], "data.py:25");
}

TEST(GpuRegionVerdicts, OfTheRegionsWithMostWork) {
  FakeRecording fake;
  ThreadId thread = fake.thread(100, 100, "python3");
  FakeGpu gpu(fake);
  for (std::uint32_t i = 0; i < 40; ++i) {
    const std::string name = "Torch-Compiled Region: " + std::to_string(i) + "/0";
    run(fake, thread, name.c_str(), 1000 * i, 1000 * i + 900);
    gpu.call(thread, i, 1000 * i + 10, 5);
    gpu.kernel(thread, i, 1000 * i + 20, 100 + i);
  }
  Attribution attribution(fake);
  const Json regions = gpu_json(Analysis(attribution))["regions"];
  ASSERT_EQ(regions.size(), 40u);
  EXPECT_EQ(regions[0]["trace_id"], "39/0");
  EXPECT_TRUE(regions[31]["verdict"].is_object());
  EXPECT_TRUE(regions[31]["verdict"]["bound"].is_null()) << "less than 10 ms";
  EXPECT_TRUE(regions[32]["verdict"].is_null());
}

}  // namespace
}  // namespace dynprof
