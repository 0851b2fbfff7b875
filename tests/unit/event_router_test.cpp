// Events of the kernel side in, rows of the recording out. The processes do not exist, as if they had just
// ended: nothing is read of them.
#include "user/session/event_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "bpf/gpu_events.h"
#include "tests/unit/fake_events.h"
#include "tests/unit/fake_kernel.h"
#include "tests/unit/memory_recording.h"

namespace dynprof {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr pid_t kTarget = 0x7ffffff0, kChild = 0x7ffffff1, kStranger = 0x7ffffff2;

class FakeOffCpu final : public OffCpu {
 public:
  int stacks = 0, waits = 0, waits_of_ended = 0;

  void add_threads(pid_t) override {}
  Result<void> attach() override { return {}; }
  void tick() override {}
  void on_stack(const SampleView&, FollowedProcess&, SampleEncoder&) override { ++stacks; }
  void on_wait(const dp_wait_event&, FollowedProcess* process, RecordingWriter&) override {
    ++(process ? waits : waits_of_ended);
  }
  void write_open(FollowedProcess&, RecordingWriter&) override {}
  void detach() override {}
  void finish(ProcessTable&, RecordingWriter&) override {}
  std::uint64_t stacks_lost() const override { return 0; }
};

class EventRouterTest : public ::testing::Test {
 protected:
  EventRouterTest() {
    processes.follow(kTarget, 0);
    targets.add(kTarget);
  }

  EventRouter make_router(bool launched = false) {
    return EventRouter({.writer = recording.writer(),
                        .encoder = encoder,
                        .processes = processes,
                        .targets = targets,
                        .lives = lives,
                        .gpu = gpu,
                        .off_cpu = &off_cpu,
                        .native = nullptr,
                        .losses = losses,
                        .pace = pace,
                        .notes = notes,
                        .launched = launched});
  }
  std::vector<LifeKind> kinds() {
    std::vector<LifeKind> kinds;
    for (const ProcessLife& life : recording.read().lives) kinds.push_back(life.kind);
    return kinds;
  }

  FakeKernel kernel;
  MemoryRecording recording;
  NativeFrames native{recording.writer()};
  SampleEncoder encoder{recording.writer(), native};
  ProcessTable processes{{}, kernel};
  Targets targets;
  ProcessLives lives{true};
  GpuCollector gpu{GpuOptions(), {}, kernel, [](const std::string&) {}};
  FakeOffCpu off_cpu;
  SessionLosses losses;
  PollPace pace{10'000'000};
  std::vector<std::string> shown;
  Notes notes{[this](const std::string& sentence) { shown.push_back(sentence); }};
  EventRouter router = make_router();
};

TEST_F(EventRouterTest, SampleIsRecorded) {
  router.route(sample_event(kTarget, 50));
  const Tables& tables = recording.read();
  ASSERT_EQ(recording.samples().size(), 1u);
  const Sample sample = recording.samples()[0];
  EXPECT_EQ(sample.time_ns, 50u);
  EXPECT_EQ(sample.flags, kSampleNoPython);
  EXPECT_EQ(tables.threads[sample.thread].pid, kTarget);
  EXPECT_EQ(tables.frames[tables.stacks[sample.stack].frame].kind, FrameKind::kKernel);
  EXPECT_EQ(losses.malformed, 0u);
}

TEST_F(EventRouterTest, ASampledProcessIsLookedAtFirst) {
  router.route(sample_event(kTarget, 50));
  EXPECT_EQ(processes.take_sampled(), processes.find(kTarget));
}

TEST_F(EventRouterTest, NewCodeIsReadAfterTheNextSampleOfItsCpu) {
  constexpr std::uint64_t kMs = 1'000'000;
  router.route(sample_event(kTarget, 1000 * kMs));
  EXPECT_EQ(pace.wait_ns(1001 * kMs), PollPace::kCalmNs);
  dp_sample sample = {};
  sample.header = event_header_of(DP_EVENT_SAMPLE, kTarget, 1000 * kMs);
  sample.flags = DP_SAMPLE_NEW_CODE;
  router.route(event_bytes(sample));
  EXPECT_EQ(pace.wait_ns(1001 * kMs), 9 * kMs + PollPace::kAfterSampleNs);
}

TEST_F(EventRouterTest, ANewProcessIsLookedForSoon) {
  router.route(process_event(DP_EVENT_FORK, kStranger, 50, kTarget));
  EXPECT_EQ(pace.wait_ns(60), PollPace::kHurriedNs);
}

TEST_F(EventRouterTest, SampleOfAnUnknownProcessStartsFollowingIt) {
  router.route(sample_event(kStranger, 50));
  EXPECT_NE(processes.find(kStranger), nullptr);
  recording.read();
  EXPECT_EQ(recording.samples().size(), 1u);
}

TEST_F(EventRouterTest, EachMalformedEventIsCountedOnce) {
  std::vector<EventBytes> malformed;
  malformed.push_back(EventBytes(sizeof(dp_event_header) - 1));
  malformed.push_back(EventBytes());
  EventBytes cut = sample_event(kTarget, 50);
  cut.resize(cut.size() - 8);
  malformed.push_back(cut);
  dp_sample sample = {};
  sample.header = event_header_of(DP_EVENT_SAMPLE, kTarget, 50);
  sample.frame_count = DP_MAX_PYTHON_FRAMES + 1;
  malformed.push_back(event_bytes(sample));
  sample.header.kind = DP_EVENT_WAIT_STACK;
  malformed.push_back(event_bytes(sample));
  malformed.push_back(wait_event(kTarget, 60, 50));  // ends before it begins
  dp_phase_event phase = {};
  phase.header = event_header_of(DP_EVENT_PHASE, kTarget, 50);
  phase.name_size = DP_PHASE_NAME_BYTES + 1;
  malformed.push_back(event_bytes(phase));
  dp_event_header unknown = event_header_of(1000, kTarget, 50);
  unknown.size = sizeof unknown;
  malformed.emplace_back(sizeof unknown);
  std::memcpy(malformed.back().data(), &unknown, sizeof unknown);
  dp_gpu_bytes batch = {};
  batch.header = event_header_of(DP_EVENT_GPU_BATCH, kTarget, 50);
  batch.bytes = 8;  // more than there are
  malformed.push_back(event_bytes(batch));
  for (std::size_t i = 0; i < malformed.size(); ++i) {
    router.route(malformed[i]);
    EXPECT_EQ(losses.malformed, i + 1) << "event " << i;
  }
  Counters counters = {};
  losses.fill(counters);
  EXPECT_EQ(counters[DP_COUNT_MALFORMED_EVENT], malformed.size());
  const Tables& tables = recording.read();
  EXPECT_THAT(recording.samples(), IsEmpty());
  EXPECT_THAT(tables.waits, IsEmpty());
  EXPECT_THAT(tables.edges, IsEmpty());
}

TEST_F(EventRouterTest, EventsOfTorchFromAnUnknownProcessAreIgnored) {
  dp_phase_event phase = {};
  phase.header = event_header_of(DP_EVENT_PHASE, kStranger, 50);
  phase.edge = DP_PHASE_BEGIN;
  router.route(event_bytes(phase));
  dp_probe_event probe = {};
  probe.header = event_header_of(DP_EVENT_PROBE, kStranger, 50);
  probe.probe = DP_PROBE_REGION_BEGIN;
  router.route(event_bytes(probe));
  EXPECT_EQ(losses.malformed, 0u);
  EXPECT_EQ(processes.find(kStranger), nullptr);
  EXPECT_THAT(recording.read().edges, IsEmpty());
}

TEST_F(EventRouterTest, RunOfACompiledRegion) {
  dp_probe_event probe = {};
  probe.header = event_header_of(DP_EVENT_PROBE, kTarget, 50);
  probe.probe = DP_PROBE_REGION_BEGIN;
  probe.sp = 0x1000;
  probe.name_size = 5;
  std::memcpy(probe.name, "graph", 5);
  router.route(event_bytes(probe));
  probe.header.time_ns = 60;
  probe.probe = DP_PROBE_REGION_END;
  probe.sp = 0xf00;
  router.route(event_bytes(probe));
  const Tables& tables = recording.read();
  ASSERT_EQ(tables.edges.size(), 2u);
  EXPECT_EQ(tables.edges[0].kind, EdgeKind::kRegionBegin);
  EXPECT_EQ(tables.strings[tables.edges[0].name], "graph");
  EXPECT_EQ(tables.edges[1].kind, EdgeKind::kRegionEnd);
  EXPECT_EQ(tables.edges[1].time_ns, 60u);
}

TEST_F(EventRouterTest, ChildFromForkToExit) {
  router.route(process_event(DP_EVENT_FORK, kChild, 10, kTarget));
  ASSERT_NE(processes.find(kChild), nullptr);
  router.route(exec_event(kChild, 20, "/bin/other"));
  router.route(sample_event(kChild, 25));
  router.route(process_event(DP_EVENT_EXIT, kChild, 30));
  EXPECT_EQ(processes.find(kChild), nullptr);
  router.route(process_event(DP_EVENT_REAPED, kChild, 40));
  EXPECT_THAT(shown, IsEmpty()) << "only a target's exec is noted";
  const Tables& tables = recording.read();
  ASSERT_EQ(tables.lives.size(), 4u);
  EXPECT_EQ(tables.lives[0].parent_pid, kTarget);
  EXPECT_EQ(tables.strings[tables.lives[1].exe], "/bin/other");
  ASSERT_EQ(tables.processes.size(), 1u) << "described when it ended";
  EXPECT_EQ(tables.strings[tables.processes[0].exe], "/bin/other");
  EXPECT_EQ(tables.strings[tables.processes[0].comm], "other");
}

TEST_F(EventRouterTest, TargetStaysKnownAfterItsExit) {
  router.route(process_event(DP_EVENT_EXIT, kTarget, 30));
  EXPECT_NE(processes.find(kTarget), nullptr) << "its facts are written at the end";
  EXPECT_TRUE(targets.all_ended());
}

TEST_F(EventRouterTest, ExecOfATargetIsNoted) {
  router.route(exec_event(kTarget, 20, "/bin/other"));
  router.route(exec_event(kTarget, 30, "/bin/other"));
  EXPECT_THAT(shown, ElementsAre("process 2147483632 has started another program"));
}

TEST_F(EventRouterTest, FirstExecOfALaunchedTargetIsTheCommand) {
  EventRouter launching = make_router(true);
  launching.route(exec_event(kTarget, 20, "/bin/command"));
  EXPECT_THAT(shown, IsEmpty());
  launching.route(exec_event(kTarget, 30, "/bin/other"));
  EXPECT_EQ(shown.size(), 1u);
}

TEST_F(EventRouterTest, ExitBeforeForkAndSampleAfterExit) {
  router.route(process_event(DP_EVENT_EXIT, kChild, 30));
  router.route(process_event(DP_EVENT_FORK, kChild, 10, kTarget));
  router.route(process_event(DP_EVENT_EXIT, kChild, 31));
  router.route(sample_event(kChild, 29));  // taken just before it ended
  EXPECT_EQ(losses.malformed, 0u);
  EXPECT_THAT(kinds(), ElementsAre(LifeKind::kFork, LifeKind::kExit, LifeKind::kExit))
      << "in time order when read";
  EXPECT_EQ(recording.samples().size(), 1u);
}

TEST_F(EventRouterTest, Waits) {
  router.route(wait_event(kTarget, 50, 60));
  router.route(wait_event(kStranger, 50, 60));
  EXPECT_EQ(off_cpu.waits, 1);
  EXPECT_EQ(off_cpu.waits_of_ended, 1);
  router.route(sample_event(kTarget, 50, DP_EVENT_WAIT_STACK));
  router.route(sample_event(kStranger, 50, DP_EVENT_WAIT_STACK));
  EXPECT_EQ(off_cpu.stacks, 1) << "a stack can be read only in a process that is followed";
  recording.read();
  EXPECT_THAT(recording.samples(), IsEmpty());
}

TEST(SessionLosses, UnreadEventsCountAsLost) {
  SessionLosses losses;
  losses.unread(sample_event(kTarget, 50));
  losses.unread(wait_event(kTarget, 50, 60));
  losses.unread(sample_event(kTarget, 50, DP_EVENT_WAIT_STACK));
  losses.unread(process_event(DP_EVENT_EXIT, kTarget, 50));
  losses.unread({});
  Counters counters = {};
  counters[DP_COUNT_RING_FULL] = 7;  // counted by the kernel side
  losses.fill(counters);
  EXPECT_EQ(counters[DP_COUNT_RING_FULL], 8u);
  EXPECT_EQ(counters[DP_COUNT_WAIT_RING_FULL], 2u);
}

}  // namespace
}  // namespace dynprof
