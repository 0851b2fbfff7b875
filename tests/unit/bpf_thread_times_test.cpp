// A thread's time on and off the CPU by the BPF programs' own code: where the kernel tells of each switch, and where it
// leaves one out.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/unit/bpf_thread_times_host.h"
#include "user/waits/wait_kind.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

// Times are in milliseconds. The scheduler's CPU time of the thread is 500 ms when it begins.
class BpfThreadTimes : public testing::Test {
 protected:
  BpfThreadTimes() {
    dp_host_new_thread(
        [](void* test, const dp_wait_event* event) {
          static_cast<BpfThreadTimes*>(test)->waits_.push_back(*event);
        },
        this);
  }

  static void found(std::uint64_t at, bool preempted) {
    dp_host_found_thread(at * kMs, kBefore * kMs, preempted);
  }
  static void in(std::uint64_t at, std::uint64_t ran) {
    dp_host_switched_in(at * kMs, (kBefore + ran) * kMs);
  }
  static void out(std::uint64_t at, std::uint64_t ran) {
    dp_host_switched_out(at * kMs, (kBefore + ran) * kMs, false);
  }
  static void preempted(std::uint64_t at, std::uint64_t ran) {
    dp_host_switched_out(at * kMs, (kBefore + ran) * kMs, true);
  }
  static std::uint64_t on_cpu() { return dp_host_thread_time().cpu_ns / kMs; }

  void expect_wait(std::size_t index, std::uint64_t begin, std::uint64_t end, WaitKind kind) const {
    ASSERT_LT(index, waits_.size());
    const dp_wait_event& wait = waits_[index];
    EXPECT_EQ(wait.begin_ns, begin * kMs);
    EXPECT_EQ(wait.header.time_ns, end * kMs);
    EXPECT_EQ(wait.length_ns, (end - begin) * kMs);
    EXPECT_EQ(wait_kind(wait), kind);
    EXPECT_EQ(wait.stack, 0U);
  }

  std::vector<dp_wait_event> waits_;

 private:
  static constexpr std::uint64_t kBefore = 500;
};

TEST_F(BpfThreadTimes, AreBetweenTheSwitches) {
  in(10, 0);
  out(13, 3);
  in(20, 3);
  preempted(24, 7);
  in(26, 7);
  out(27, 8);
  ASSERT_EQ(waits_.size(), 2U);
  expect_wait(0, 13, 20, WaitKind::kPageFault);  // by no system call
  expect_wait(1, 24, 26, WaitKind::kPreempted);
  EXPECT_EQ(waits_[1].runnable_ns, 2 * kMs);
  EXPECT_EQ(waits_[1].cpu_ns, 7 * kMs);
  EXPECT_EQ(on_cpu(), 8U);
  EXPECT_EQ(dp_host_untold(), 0U);
}

TEST_F(BpfThreadTimes, AWaitThatWasNotSeenToBegin) {
  in(10, 0);
  out(12, 2);
  in(13, 2);
  // It leaves the CPU at 16, which is not told.
  in(40, 5);
  out(41, 6);
  ASSERT_EQ(waits_.size(), 2U);
  expect_wait(1, 16, 40, WaitKind::kOther);
  EXPECT_EQ(waits_[1].runnable_ns, 0U);
  EXPECT_EQ(waits_[1].cpu_ns, 5 * kMs);
  EXPECT_EQ(on_cpu(), 6U);
  EXPECT_EQ(dp_host_untold(), 1U);
}

TEST_F(BpfThreadTimes, TwoWaitsThatWereNotSeenToBegin) {
  in(10, 0);
  in(20, 3);
  in(30, 7);
  out(31, 8);
  ASSERT_EQ(waits_.size(), 2U);
  expect_wait(0, 13, 20, WaitKind::kOther);
  expect_wait(1, 24, 30, WaitKind::kOther);
  EXPECT_EQ(on_cpu(), 8U);
  EXPECT_EQ(dp_host_untold(), 2U);
}

TEST_F(BpfThreadTimes, AThreadThatRanAllTheTimeDidNotWait) {
  in(10, 0);
  in(20, 10);
  out(25, 15);
  EXPECT_TRUE(waits_.empty());
  EXPECT_EQ(on_cpu(), 15U);
  EXPECT_EQ(dp_host_untold(), 1U);
}

TEST_F(BpfThreadTimes, AWaitThatWasNotSeenToEnd) {
  in(10, 0);
  out(13, 3);
  // It runs again from 28 on, which is not told.
  out(30, 5);
  in(35, 5);
  out(36, 6);
  ASSERT_EQ(waits_.size(), 2U);
  expect_wait(0, 13, 28, WaitKind::kPageFault);
  expect_wait(1, 30, 35, WaitKind::kPageFault);
  EXPECT_EQ(on_cpu(), 6U);
  EXPECT_EQ(dp_host_untold(), 1U);
}

TEST_F(BpfThreadTimes, AThreadFoundWaitingThatWasNotSeenToRun) {
  found(10, false);
  out(30, 4);
  ASSERT_EQ(waits_.size(), 1U);
  expect_wait(0, 10, 26, WaitKind::kPageFault);
  EXPECT_EQ(on_cpu(), 4U);
  EXPECT_EQ(dp_host_untold(), 1U);
}

TEST_F(BpfThreadTimes, AThreadFoundRunning) {
  found(10, true);
  out(30, 20);
  EXPECT_TRUE(waits_.empty());
  EXPECT_EQ(on_cpu(), 20U);
  EXPECT_EQ(dp_host_untold(), 0U);
}

TEST_F(BpfThreadTimes, AWaitNotSeenToBeginOfAThreadFoundWaiting) {
  found(10, false);
  in(20, 0);
  in(40, 6);
  out(41, 7);
  ASSERT_EQ(waits_.size(), 2U);
  expect_wait(0, 10, 20, WaitKind::kPageFault);
  expect_wait(1, 26, 40, WaitKind::kOther);
  EXPECT_EQ(on_cpu(), 7U);
  EXPECT_EQ(dp_host_untold(), 1U);
}

}  // namespace
}  // namespace dynprof
