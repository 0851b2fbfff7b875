// Which process inherits what from which, and when: a child copies what is known of its parent as late
// as it can, but before that is forgotten.
#include "user/process/process_table.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/unit/fake_kernel.h"
#include "tests/unit/memory_recording.h"
#include "user/process/process_lives.h"

namespace dynprof {
namespace {

// Pids no process has: nothing is read of it.
constexpr pid_t kParent = 0x7ffffff0, kChild = 0x7ffffff1, kGrandchild = 0x7ffffff2;

class ProcessTableTest : public testing::Test {
 protected:
  ProcessTableTest() { table.follow(kParent, 0).native().set_space(space); }
  const NativeSpace* space_of(pid_t pid) { return table.find(pid)->native().space().get(); }

  FakeKernel kernel;
  ProcessTable table{{}, kernel};
  NativeSpaceRef space = std::make_shared<NativeSpace>();
};

TEST_F(ProcessTableTest, ASampledProcessIsLookedAtFirstIfALookIsDue) {
  table.follow(kChild, kParent);  // after a moment
  const std::uint64_t due_ns = table.find(kChild)->next_look_ns();
  table.sampled(*table.find(kChild), due_ns - 1);
  EXPECT_EQ(table.take_sampled(), nullptr);
  table.sampled(*table.find(kChild), due_ns);
  table.sampled(*table.find(kChild), due_ns + 1);
  EXPECT_EQ(table.take_sampled(), table.find(kChild));
  EXPECT_EQ(table.take_sampled(), nullptr);
}

TEST_F(ProcessTableTest, ASampledProcessThatHasEndedIsNotLookedAt) {
  table.sampled(*table.find(kParent), UINT64_MAX);
  table.erase(kParent);
  EXPECT_EQ(table.take_sampled(), nullptr);
}

TEST_F(ProcessTableTest, AChildInheritsWhenItIsAskedFor) {
  table.forked(kChild, kParent);
  EXPECT_EQ(space_of(kChild), nullptr) << "most children exec before it is needed";
  table.inherit(kChild);
  EXPECT_EQ(space_of(kChild), space.get());
}

TEST_F(ProcessTableTest, AChildInheritsOnce) {
  table.forked(kChild, kParent);
  table.inherit(kChild);
  table.find(kChild)->native().set_space(nullptr);
  table.inherit(kChild);
  EXPECT_EQ(space_of(kChild), nullptr) << "it would be what the parent is by now";
}

TEST_F(ProcessTableTest, AChildInheritsBeforeItsParentExecs) {
  table.forked(kChild, kParent);
  table.image_ends(kParent);
  table.find(kParent)->forget_image(1);
  EXPECT_EQ(space_of(kParent), nullptr);
  EXPECT_EQ(space_of(kChild), space.get());
}

TEST_F(ProcessTableTest, AChildThatExecsInheritsNothing) {
  table.forked(kChild, kParent);
  table.image_ends(kChild);
  table.find(kChild)->forget_image(1);
  table.inherit(kChild);
  EXPECT_EQ(space_of(kChild), nullptr);
}

TEST_F(ProcessTableTest, AGrandchildInheritsThroughItsParent) {
  table.forked(kChild, kParent);
  table.forked(kGrandchild, kChild);
  EXPECT_EQ(space_of(kChild), space.get()) << "who forks needs it";
  table.image_ends(kChild);
  table.erase(kChild);
  EXPECT_EQ(space_of(kGrandchild), space.get());
}

TEST_F(ProcessTableTest, AReusedPidIsAnotherProcess) {
  table.forked(kChild, kParent);
  table.inherit(kChild);
  table.forked(kChild, kGrandchild);  // of a parent that is not followed
  table.inherit(kChild);
  EXPECT_EQ(space_of(kChild), nullptr);
}

TEST_F(ProcessTableTest, AnUnknownParentIsNoParent) {
  table.forked(kChild, kGrandchild);
  table.inherit(kChild);
  table.image_ends(kGrandchild);
  EXPECT_EQ(space_of(kChild), nullptr);
}

TEST(PendingChildren, AreBoundedPerParent) {
  PendingChildren pending;
  for (pid_t child = 2; child < 1000; ++child) pending.add(child, 1);
  EXPECT_EQ(pending.of(1).size(), 64u);
  EXPECT_EQ(pending.take_parent(2), 1);
  EXPECT_EQ(pending.take_parent(2), 0);
}

// ---- what is recorded of them -------------------------------------------------------------------

TEST(ProcessLives, EachKindOfEvent) {
  MemoryRecording recording;
  const ProcessLives lives(true);
  ProcessEventView view = {};
  auto& event = view.event;
  auto emit = [&](dp_event_kind kind, std::uint64_t time_ns) {
    event.header.kind = kind;
    event.header.time_ns = time_ns;
    lives.event(view, recording.writer());
  };
  event.header.pid = 7;
  event.parent_pid = 5;
  event.parent_tid = 6;
  std::copy_n("cc1plus", 8, event.comm);
  emit(DP_EVENT_FORK, 10);
  event.peak_of = DP_PEAK_BEFORE_EXEC;
  event.peak_bytes = 4096;
  view.exe = "/usr/bin/g++";
  view.args = std::string_view("g++\0-c\0", 7);
  event.args_whole = 7;
  emit(DP_EVENT_EXEC, 20);
  event.args_whole = 9000;  // the rest did not fit
  emit(DP_EVENT_EXEC, 21);
  event.peak_of = DP_PEAK_PROGRAM;
  event.peak_bytes = 8192;
  event.exit_code = 256;
  event.cpu_ns = 5;
  emit(DP_EVENT_EXIT, 30);
  event.peak_of = DP_PEAK_NONE;
  emit(DP_EVENT_REAPED, 40);
  const Tables& tables = recording.read();
  ASSERT_EQ(tables.lives.size(), 5u);
  const auto text = [&](StringId id) { return tables.strings[id]; };
  EXPECT_EQ(tables.lives[0].kind, LifeKind::kFork);
  EXPECT_EQ(tables.lives[0].pid, 7);
  EXPECT_EQ(tables.lives[0].parent_pid, 5);
  EXPECT_EQ(tables.lives[0].parent_tid, 6);
  EXPECT_EQ(text(tables.lives[0].comm), "cc1plus");
  EXPECT_EQ(tables.lives[1].kind, LifeKind::kExec);
  EXPECT_EQ(tables.lives[1].parent_pid, 0) << "only a fork has a parent";
  EXPECT_EQ(text(tables.lives[1].exe), "/usr/bin/g++");
  EXPECT_EQ(text(tables.lives[1].command_line), std::string_view("g++\0-c", 6));
  EXPECT_EQ(tables.lives[1].command_bytes, 6u);
  EXPECT_EQ(tables.lives[2].command_bytes, 9000u);
  EXPECT_EQ(tables.lives[3].kind, LifeKind::kExit);
  EXPECT_EQ(tables.lives[3].exit_code, 256);
  EXPECT_EQ(tables.lives[4].kind, LifeKind::kReaped);
  EXPECT_EQ(tables.lives[4].exit_code, 0);
  EXPECT_EQ(tables.lives[4].cpu_ns, 5u);
  EXPECT_EQ(tables.memory_peaks, (std::vector<MemoryPeak>{{20, 7, PeakOf::kBeforeExec, 4096},
                                                          {21, 7, PeakOf::kBeforeExec, 4096},
                                                          {30, 7, PeakOf::kProgram, 8192}}));
}

TEST(ProcessLives, ThePeakOfAProcessThatGoesOn) {
  MemoryRecording recording;
  const ProcessLives lives(true);
  lives.left(::getpid(), recording.writer());
  const Tables& tables = recording.read();
  ASSERT_EQ(tables.memory_peaks.size(), 1u);
  rusage usage = {};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  EXPECT_EQ(tables.memory_peaks[0].pid, ::getpid());
  EXPECT_EQ(tables.memory_peaks[0].of, PeakOf::kProgram);
  EXPECT_GT(tables.memory_peaks[0].bytes, std::uint64_t{1} << 20);
  // The two are summed up from the counters of the CPUs in different ways.
  EXPECT_LE(tables.memory_peaks[0].bytes,
            (static_cast<std::uint64_t>(usage.ru_maxrss) + 8192) * 1024);
}

}  // namespace
}  // namespace dynprof
