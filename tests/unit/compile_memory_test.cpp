#include "symbolizer/attribution/compile_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>

#include "symbolizer/export/memory_json.h"
#include "tests/unit/fake_edges.h"
#include "user/process/memory_watch.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kMiB = 1 << 20;

// One compile 0/0 of 100 ms in process 100.
struct CompileMemoryTest : testing::Test {
  FakeRecording fake;
  FakeEdges edges{fake, fake.thread(100, 100)};
  std::uint64_t begin_ns = 0;
  std::optional<Attribution> attribution;
  std::optional<ProcessTree> tree;

  CompileMemoryTest() {
    fake.pass_ms(1'000);
    begin_ns = fake.now();
    edges.forward("0/0");
    fake.edit_trailer().end_ns = fake.now() + kMs;
  }
  void reading(std::uint64_t ms, std::uint64_t mib, std::int32_t pid = 100) {
    fake.edit_tables().memory_samples.push_back({begin_ns + ms * kMs, pid, mib * kMiB});
  }
  CompileMemory found() {
    attribution.emplace(fake);
    EXPECT_EQ(attribution->compiles().size(), 1u);
    tree.emplace(*attribution);
    return CompileMemories(*attribution, *tree).of(0);
  }
};

TEST_F(CompileMemoryTest, TheReadingsInIt) {
  fake.edit_tables().memory_samples.push_back({begin_ns - 1, 100, 900 * kMiB});
  reading(10, 300);
  reading(20, 400, 101);  // of another process
  reading(50, 500);
  reading(60, 450);
  reading(101, 800);  // after it
  const CompileMemory memory = found();
  EXPECT_EQ(memory.first_bytes, 300 * kMiB);
  EXPECT_EQ(memory.peak_bytes, 500 * kMiB);
  EXPECT_EQ(memory.readings, 3u);
  EXPECT_EQ(memory.longest_gap_ns, 40 * kMs);
  EXPECT_EQ(memory.child_bytes, 0u);
  const nlohmann::ordered_json json = memory_json(memory);
  EXPECT_EQ(json["peak_rss_bytes"], 500 * kMiB);
  EXPECT_EQ(json["longest_gap_s"], 0.04);
  EXPECT_EQ(json["child_peak_rss_bytes"], nullptr);
}

TEST_F(CompileMemoryTest, NothingIsKnownWithoutAReading) {
  const CompileMemory memory = found();
  EXPECT_EQ(memory.peak_bytes, 0u);
  EXPECT_EQ(memory_json(memory)["peak_rss_bytes"], nullptr);
  EXPECT_EQ(memory_json(memory)["longest_gap_s"], nullptr);
}

TEST_F(CompileMemoryTest, TheLargestOfItsChildren) {
  for (std::int32_t pid : {200, 201}) {
    const std::uint64_t at_ns = begin_ns + 50 * kMs;
    fake.edit_tables().lives.push_back({.time_ns = at_ns,
                                        .pid = pid,
                                        .kind = LifeKind::kFork,
                                        .parent_pid = 100,
                                        .parent_tid = 100});
    fake.edit_tables().lives.push_back(
        {.time_ns = at_ns + kMs, .pid = pid, .kind = LifeKind::kExit, .cpu_ns = 1});
    fake.edit_tables().memory_peaks.push_back(
        {at_ns + kMs, pid, PeakOf::kProgram, static_cast<std::uint64_t>(pid) * kMiB});
  }
  EXPECT_EQ(found().child_bytes, 201 * kMiB);
}

TEST(ResidentBytes, AreOfTheProcess) {
  EXPECT_GT(resident_bytes(::getpid()), kMiB);
  EXPECT_LT(resident_bytes(::getpid()), std::uint64_t{1} << 40);
  EXPECT_EQ(resident_bytes(0x7ffffff0), 0u);
}

}  // namespace
}  // namespace dynprof
