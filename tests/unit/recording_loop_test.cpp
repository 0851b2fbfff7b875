// A recording from its first row to its last, with events that a test puts into the kernel side.
#include "user/session/recording_loop.h"

#include <gtest/gtest.h>

#include "tests/unit/fake_events.h"
#include "tests/unit/fake_kernel.h"
#include "tests/unit/memory_recording.h"
#include "user/target/clock.h"

namespace dynprof {
namespace {

constexpr pid_t kChild = 0x7ffffff1;

class RecordingLoopTest : public ::testing::Test {
 protected:
  RecordingLoopTest() {
    options.native = options.off_cpu = false;
    options.gpu.mode = GpuMode::kOff;
    sources.kernel = std::move(owned_kernel);
    sources.gpu = std::make_unique<GpuCollector>(options.gpu, options.targets, kernel,
                                                 [](const std::string&) {});
    sources.sampling = CpuSampling({.online = [] { return std::vector<int>(); },
                                    .open = [](int) { return Result<UniqueFd>(error("no CPU")); },
                                    .attach = [](UniqueFd) { return Result<Link>(error("")); }});
    hooks.stop_requested = [this] { return ++rounds > rounds_wanted; };
    hooks.progress = [this](const SessionStatus& now) { last_status = now; };
  }
  // Runs until stop_requested, or another reason.
  std::string run() {
    ReaderPriority priority;
    ProcessFollower follower(options, sources, targets, notes, {});
    EXPECT_TRUE(follower.examine().has_value());
    EXPECT_TRUE(follower.begin().has_value());
    RecordingLoop loop(
        {options, hooks, sources, follower, targets, notes, recording.writer(), priority},
        monotonic_ns());
    std::string reason = loop.run();
    sources.detach();
    loop.read_rest();
    loop.write_end();
    loop.write_names();
    counters = loop.counters();
    status = loop.status(monotonic_ns());
    return reason;
  }

  SessionOptions options;
  SessionHooks hooks;
  int rounds = 0, rounds_wanted = 3;
  std::unique_ptr<FakeKernel> owned_kernel = std::make_unique<FakeKernel>();
  FakeKernel& kernel = *owned_kernel;
  std::vector<std::string> shown;
  Notes notes{[this](const std::string& sentence) { shown.push_back(sentence); }};
  Targets targets;
  Sources sources;
  MemoryRecording recording;
  Counters counters = {};
  SessionStatus status, last_status;
};

TEST_F(RecordingLoopTest, EventsInRecordingOut) {
  kernel.events = {process_event(DP_EVENT_FORK, kChild, 10, 1), sample_event(kChild, 20),
                   sample_event(kChild, 30), process_event(DP_EVENT_EXIT, kChild, 40)};
  EXPECT_EQ(run(), "interrupted");
  EXPECT_EQ(status.samples, 2u);
  const Tables& tables = recording.read();
  EXPECT_EQ(recording.samples().size(), 2u);
  ASSERT_EQ(tables.lives.size(), 2u);
  EXPECT_EQ(tables.lives[0].kind, LifeKind::kFork);
  EXPECT_EQ(tables.lives[1].kind, LifeKind::kExit);
  ASSERT_EQ(tables.processes.size(), 1u);
  EXPECT_EQ(tables.strings[tables.processes[0].comm], "");
}

TEST_F(RecordingLoopTest, EventsThatComeInSeveralRounds) {
  kernel.at_once = 1;
  for (std::uint64_t i = 0; i < 3; ++i) kernel.events.push_back(sample_event(kChild, 20 + i));
  run();
  EXPECT_EQ(status.samples, 3u);
  EXPECT_EQ(counters[DP_COUNT_RING_FULL], 0u);
}

TEST_F(RecordingLoopTest, EventsNotReadInTimeAreCountedAsLost) {
  kernel.at_once = 1;
  rounds_wanted = 0;
  for (std::uint64_t i = 0; i < 10; ++i) kernel.events.push_back(sample_event(kChild, 20 + i));
  run();
  const std::uint64_t left = kernel.events.size();
  EXPECT_GT(counters[DP_COUNT_RING_FULL], 0u);
  EXPECT_EQ(status.samples + counters[DP_COUNT_RING_FULL] + left, 10u);
}

TEST_F(RecordingLoopTest, LossesOfTheKernelSideAreInTheStatus) {
  kernel.counted[DP_COUNT_RING_FULL] = 5;
  kernel.counted[DP_COUNT_NO_SCRATCH] = 2;
  run();
  EXPECT_EQ(last_status.lost, 7u);
  EXPECT_EQ(counters[DP_COUNT_RING_FULL], 5u);
}

TEST_F(RecordingLoopTest, MalformedEventsAreCounted) {
  kernel.events = {EventBytes(3), sample_event(kChild, 20), EventBytes(400)};
  run();
  EXPECT_EQ(status.samples, 1u);
  EXPECT_EQ(counters[DP_COUNT_MALFORMED_EVENT], 2u);
}

TEST_F(RecordingLoopTest, EndsAfterItsDuration) {
  options.duration_ns = 1;
  rounds_wanted = 1'000'000;
  EXPECT_EQ(run(), "duration");
}

TEST_F(RecordingLoopTest, EndsWithItsTargets) {
  rounds_wanted = 1'000'000;
  targets.add(kChild);  // there is no such process
  kernel.events = {sample_event(kChild, 30), process_event(DP_EVENT_EXIT, kChild, 40)};
  EXPECT_EQ(run(), "target exited");
}

TEST_F(RecordingLoopTest, EndsWhenTheDiskIsNearlyFull) {
  rounds_wanted = 1'000'000;
  hooks.disk_is_nearly_full = [] { return true; };
  EXPECT_EQ(run(), "disk nearly full");
}

}  // namespace
}  // namespace dynprof
