// The library's tables, in our own memory instead of a target's.
#include "user/gpu/target_tables.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>

namespace dynprof {
namespace {

constexpr std::uint64_t kNowhere = 0x10;

class TargetTablesTest : public ::testing::Test {
 protected:
  TargetTablesTest() {
    devices[1].kind = DYNPROF_GPU_DEVICE;
    devices[1].device = 1;
    devices[1].gpu.processors = 132;
    devices[2].kind = DYNPROF_GPU_DEVICE;  // of another number than its place
    entries = {{{1, 0, 5}, {2, 5, 3}, {3, 0, 0}, {4, 0, DYNPROF_GPU_MAX_NAME + 1}}};
    tables = {.names = std::bit_cast<std::uint64_t>(entries.data()),
              .text = std::bit_cast<std::uint64_t>(&text[0]),
              .devices = std::bit_cast<std::uint64_t>(devices.data()),
              .name_count = 4,
              .pad = 0};
  }

  char text[9] = "firsttwo";
  std::array<dynprof_gpu_name_entry, 4> entries;
  std::array<dynprof_gpu_record, DYNPROF_GPU_MAX_DEVICES> devices{};
  dynprof_gpu_tables tables;
  TargetTables read{getpid(), std::bit_cast<std::uint64_t>(&tables)};
};

TEST_F(TargetTablesTest, NamesById) {
  EXPECT_EQ(read.name(1), "first");
  EXPECT_EQ(read.name(2), "two");
  EXPECT_EQ(read.name(0), std::nullopt);
  EXPECT_EQ(read.name(3), std::nullopt) << "empty";
  EXPECT_EQ(read.name(4), std::nullopt) << "too long";
  EXPECT_EQ(read.name(5), std::nullopt) << "there are four";
  EXPECT_EQ(read.name(~0u), std::nullopt);
}

TEST_F(TargetTablesTest, DevicesByNumber) {
  ASSERT_TRUE(read.device(1).has_value());
  EXPECT_EQ(read.device(1)->gpu.processors, 132u);
  EXPECT_FALSE(read.device(0).has_value());
  EXPECT_FALSE(read.device(2).has_value());
  EXPECT_FALSE(read.device(DYNPROF_GPU_MAX_DEVICES).has_value());
}

TEST_F(TargetTablesTest, AddressesThatLeadNowhere) {
  tables.names = tables.devices = kNowhere;
  EXPECT_EQ(read.name(1), std::nullopt);
  EXPECT_FALSE(read.device(1).has_value());
  TargetTables nowhere(getpid(), kNowhere);
  EXPECT_EQ(nowhere.name(1), std::nullopt);
}

TEST_F(TargetTablesTest, GivesUpAfterManyFailures) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(read.name(9), std::nullopt);
  EXPECT_EQ(read.name(1), std::nullopt);
}

}  // namespace
}  // namespace dynprof
