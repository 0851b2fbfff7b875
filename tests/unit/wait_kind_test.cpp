#include "user/waits/wait_kind.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <initializer_list>

namespace dynprof {
namespace {

constexpr unsigned kInterruptible = 1, kUninterruptible = 2;

// What reads and writes wait for is what the file is, whichever call it is.
TEST(WaitKinds, OfAFile) {
  struct Row {
    unsigned mode;
    WaitKind kind;
  };
  constexpr Row kRows[] = {
      {S_IFIFO, WaitKind::kPipe}, {S_IFSOCK, WaitKind::kSocket}, {S_IFREG, WaitKind::kDisk},
      {S_IFDIR, WaitKind::kDisk}, {S_IFBLK, WaitKind::kDisk},    {S_IFCHR, WaitKind::kTerminal},
      {0600, WaitKind::kPoll},  // an eventfd and such have no type
  };
  for (int call : {SYS_read, SYS_write, SYS_readv, SYS_writev}) {
    ASSERT_TRUE(dp_call_names_file(call))
        << "the kernel side does not look at the file of " << call;
    for (const Row& row : kRows)
      EXPECT_EQ(wait_kind(call, row.mode | 0600, kInterruptible), row.kind)
          << call << " mode " << row.mode;
    // Nothing is known of the file: only a wait that cannot be interrupted is one for a disk.
    EXPECT_EQ(wait_kind(call, 0, kInterruptible), WaitKind::kOther);
    EXPECT_EQ(wait_kind(call, 0, kUninterruptible), WaitKind::kDisk);
  }
}

TEST(WaitKinds, OfACall) {
  struct Row {
    WaitKind kind;
    std::initializer_list<int> calls;
  };
  const Row rows[] = {
      {WaitKind::kPageFault, {-1}},
      {WaitKind::kFutex, {SYS_futex, 449, 455}},
      {WaitKind::kDisk,
       {SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_fsync, SYS_fdatasync, SYS_sync,
        SYS_sendfile, SYS_msync}},
      {WaitKind::kSocket,
       {SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg, SYS_accept, SYS_accept4,
        SYS_connect}},
      {WaitKind::kPoll,
       {SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_wait, SYS_epoll_pwait, 441}},
      {WaitKind::kSleep, {SYS_nanosleep, SYS_clock_nanosleep}},
      {WaitKind::kChild, {SYS_wait4, SYS_waitid}},
      {WaitKind::kSignal, {SYS_pause, SYS_rt_sigtimedwait, SYS_rt_sigsuspend}},
      {WaitKind::kDevice, {SYS_ioctl}},
      {WaitKind::kMemory, {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_mremap, SYS_brk}},
      {WaitKind::kProcess, {SYS_clone, 435, SYS_fork, SYS_vfork, SYS_execve, SYS_exit_group}},
      {WaitKind::kOther, {SYS_getpid, SYS_sched_yield, 9999, DP_CALL_UNKNOWN}},
  };
  for (const Row& row : rows) {
    for (int call : row.calls) {
      EXPECT_EQ(wait_kind(call, 0, kInterruptible), row.kind) << call;
      // Where the first argument is no file, what is open under its number does not matter.
      if (!dp_call_names_file(call)) {
        EXPECT_EQ(wait_kind(call, S_IFSOCK, kInterruptible), row.kind) << call;
      }
    }
  }
}

TEST(WaitKinds, OpeningAFileIsADiskWaitOnlyWhereItCannotBeInterrupted) {
  for (int call : {SYS_open, SYS_openat, SYS_newfstatat, SYS_statx, SYS_unlink, SYS_close}) {
    EXPECT_EQ(wait_kind(call, 0, kInterruptible), WaitKind::kOther) << call;
    EXPECT_EQ(wait_kind(call, 0, kUninterruptible), WaitKind::kDisk) << call;
  }
}

TEST(WaitKinds, OfAnEvent) {
  dp_wait_event event = {};
  event.call = SYS_readv;
  event.mode = S_IFIFO | 0600;
  event.state = kInterruptible;
  EXPECT_EQ(wait_kind(event), WaitKind::kPipe);
  event.flags = DP_WAIT_PREEMPTED;
  EXPECT_EQ(wait_kind(event), WaitKind::kPreempted) << "it could have run, whatever the call";
  event.flags = DP_WAIT_MARK;
  EXPECT_EQ(wait_kind(event), WaitKind::kNone);
}

}  // namespace
}  // namespace dynprof
