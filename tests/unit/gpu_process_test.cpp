// Which records of the library belong to a recording that ends.
#include "user/gpu/gpu_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "user/target/clock.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

dynprof_gpu_record record(std::uint32_t kind, std::uint32_t correlation, std::uint64_t start_ns) {
  dynprof_gpu_record record{};
  record.kind = kind;
  record.correlation = correlation;
  record.start_ns = start_ns;
  return record;
}

class EndOfGpuProcess : public testing::Test {
 protected:
  bool is_after_end(std::uint32_t kind, std::uint32_t correlation, std::uint64_t start_ns) {
    return gpu.after_end(record(kind, correlation, start_ns));
  }

  GpuProcess gpu{getpid()};
  const std::uint64_t before = monotonic_ns();
  const std::uint64_t after = before + 10 * kSecond;
};

TEST_F(EndOfGpuProcess, WorkOfAnAnnouncedCallMayRunLater) {
  EXPECT_TRUE(gpu.launched(before, 5));
  gpu.begin_detach();
  EXPECT_FALSE(is_after_end(DYNPROF_GPU_KERNEL, 5, after));
  EXPECT_TRUE(is_after_end(DYNPROF_GPU_KERNEL, 6, after));
  EXPECT_FALSE(gpu.launched(after, 6));
}

// Where stacks are sampled most calls are not announced.
TEST_F(EndOfGpuProcess, WorkOfACallThatFinishedMayRunLater) {
  EXPECT_FALSE(is_after_end(DYNPROF_GPU_CALL_RECORD, 5, before));
  gpu.begin_detach();
  EXPECT_FALSE(is_after_end(DYNPROF_GPU_CALL_RECORD, 6, before)) << "it comes late";
  EXPECT_TRUE(is_after_end(DYNPROF_GPU_CALL_RECORD, 7, after));
  EXPECT_FALSE(is_after_end(DYNPROF_GPU_KERNEL, 5, after));
  EXPECT_FALSE(is_after_end(DYNPROF_GPU_KERNEL, 6, after));
  EXPECT_TRUE(is_after_end(DYNPROF_GPU_KERNEL, 7, after));
  EXPECT_FALSE(is_after_end(DYNPROF_GPU_DEVICE, 0, after));
}

}  // namespace
}  // namespace dynprof
