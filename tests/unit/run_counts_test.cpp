// From the kernel side's counts of runs to rows of the recording.
#include "user/torch/run_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/fake_kernel.h"
#include "tests/unit/memory_recording.h"

namespace dynprof {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr pid_t kPid = 77;
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr const char* kName = "Torch-Compiled Region: 0/0";
constexpr std::uint64_t kRegionCode = 0x1000, kBackwardClass = 0x2000, kOtherClass = 0x3000;

class RunCountsTest : public ::testing::Test {
 protected:
  std::size_t region(std::uint64_t code, const char* name, pid_t pid = kPid) {
    dp_region_count count = {};
    count.key.code = code;
    count.key.pid = static_cast<std::uint32_t>(pid);
    count.key.probe = *name ? DP_PROBE_REGION_BEGIN : DP_PROBE_NODE_BEGIN;
    std::memcpy(count.key.name, name, std::min(std::strlen(name), sizeof count.key.name));
    kernel.regions.push_back(count);
    return kernel.regions.size() - 1;
  }
  void run(std::size_t index, std::uint64_t times) {
    dp_region_count& count = kernel.regions[index];
    count.calls += times;
    count.timed += times;
    count.time_ns += 5000 * times;
  }
  RunCounts::Describe describe() {
    return [this](const dp_region_key& key) -> RunCounts::Region {
      ++described;
      if (key.probe == DP_PROBE_REGION_BEGIN) return {region_name(key), 0};
      return {key.code == kBackwardClass ? "CompiledFunctionBackward 0/0" : "", 0};
    };
  }
  void tick(std::uint64_t now_ns) { counts.tick(now_ns, describe(), recording.writer()); }
  void end(std::uint64_t now_ns, RunsThen then = RunsThen::kCounted) {
    counts.end(now_ns, then, describe(), recording.writer());
  }
  // Name and calls of each row; "": in that time runs were counted.
  std::vector<std::pair<std::string, std::uint64_t>> rows() {
    std::vector<std::pair<std::string, std::uint64_t>> all;
    tables = &recording.read();
    for (const RegionRuns& row : tables->region_runs)
      all.emplace_back(tables->strings[row.name], row.calls);
    return all;
  }

  FakeKernel kernel;
  MemoryRecording recording;
  RunCounts counts{kernel};
  const Tables* tables = nullptr;  // after rows()
  int described = 0;
};

TEST_F(RunCountsTest, RowsSayWhatWasAdded) {
  counts.begin(kPid, 10);
  const std::size_t one = region(kRegionCode, kName);
  run(one, 3);
  tick(20);  // it is new
  run(one, 4);
  tick(30);
  tick(20 + 10 * kSecond);
  end(40 + 10 * kSecond);
  EXPECT_EQ(described, 1);
  EXPECT_THAT(rows(),
              ElementsAre(Pair("", 0), Pair(kName, 3), Pair("", 0), Pair(kName, 4), Pair("", 0)));
  const RegionRuns& row = tables->region_runs[3];
  EXPECT_EQ(row.begin_ns, 20u);
  EXPECT_EQ(row.end_ns, 20 + 10 * kSecond);
  EXPECT_EQ(row.pid, kPid);
  EXPECT_EQ(row.timed, 4u);
  EXPECT_EQ(row.time_ns, 20'000u);
}

TEST_F(RunCountsTest, NothingIsWrittenBeforeAndAfterCounting) {
  const std::size_t one = region(kRegionCode, kName);
  run(one, 1);
  tick(10);
  end(20);
  counts.begin(kPid, 30);
  run(one, 2);
  end(40, RunsThen::kNotCounted);
  run(one, 4);
  tick(50 + 20 * kSecond);
  end(60 + 20 * kSecond);
  EXPECT_THAT(rows(), ElementsAre(Pair("", 0), Pair(kName, 2)));
  EXPECT_EQ(tables->region_runs[0].then, RunsThen::kNotCounted);
}

TEST_F(RunCountsTest, RunsAreCountedAfterLengthsEnd) {
  counts.begin(kPid, 10);
  const std::size_t one = region(kRegionCode, kName);
  run(one, 2);
  counts.lengths_end(30, describe(), recording.writer());
  kernel.regions[one].calls += 5;
  end(40);
  EXPECT_THAT(rows(), ElementsAre(Pair("", 0), Pair(kName, 2), Pair("", 0), Pair(kName, 5)));
  EXPECT_EQ(tables->region_runs[0].then, RunsThen::kNotTimed);
  EXPECT_EQ(tables->region_runs[0].end_ns, 30u);
  EXPECT_EQ(tables->region_runs[2].then, RunsThen::kCounted);
  EXPECT_EQ(tables->region_runs[3].timed, 0u);
}

TEST_F(RunCountsTest, OtherProcessesAndNodesThatAreNotCompiledAreLeftOut) {
  counts.begin(kPid, 10);
  run(region(kRegionCode, kName, kPid + 1), 5);
  run(region(kBackwardClass, ""), 6);
  run(region(kOtherClass, ""), 7);
  end(20);
  EXPECT_THAT(rows(), ElementsAre(Pair("", 0), Pair("CompiledFunctionBackward 0/0", 6)));
}

TEST_F(RunCountsTest, ARegionThatIsBeingFilledInIsFoundLater) {
  counts.begin(kPid, 10);
  const std::size_t one = region(kRegionCode, kName, 0);
  run(one, 2);
  tick(20);
  kernel.regions[one].key.pid = kPid;
  run(one, 2);
  tick(30);
  EXPECT_THAT(rows(), ElementsAre(Pair("", 0), Pair(kName, 4)));
}

TEST_F(RunCountsTest, CountsOfAnEarlierProcessWithThePidAreNotItsOwn) {
  const std::size_t old = region(kRegionCode, kName);
  run(old, 100);
  counts.begin(kPid, 10);
  run(old, 1);
  end(20);
  EXPECT_THAT(rows(), ElementsAre(Pair("", 0), Pair(kName, 1)));
}

TEST_F(RunCountsTest, RunsThatOnlyEventsShowAreAdded) {
  counts.begin(kPid, 10);
  counts.add_one("CompiledFunctionBackward 0/0");
  counts.add_one("CompiledFunctionBackward 0/0");
  end(20);
  EXPECT_THAT(rows(), ElementsAre(Pair("", 0), Pair("CompiledFunctionBackward 0/0", 2)));
}

TEST_F(RunCountsTest, ANameIsCutAtItsEndOrAtTheKeys) {
  dp_region_key key = {};
  EXPECT_EQ(region_name(key), "");
  std::memcpy(key.name, "ab", 2);
  EXPECT_EQ(region_name(key), "ab");
  std::memset(key.name, 'x', sizeof key.name);
  EXPECT_EQ(region_name(key).size(), sizeof key.name);
}

}  // namespace
}  // namespace dynprof
