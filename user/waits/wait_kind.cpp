#include "user/waits/wait_kind.h"

#include <sys/stat.h>
#include <sys/syscall.h>

namespace dynprof {
namespace {

constexpr unsigned kUninterruptible = 2;

WaitKind of_file(unsigned mode, unsigned state) {
  if (S_ISFIFO(mode)) return WaitKind::kPipe;
  if (S_ISSOCK(mode)) return WaitKind::kSocket;
  if (S_ISREG(mode) || S_ISDIR(mode) || S_ISBLK(mode)) return WaitKind::kDisk;
  if (S_ISCHR(mode)) return WaitKind::kTerminal;
  // Anonymous: eventfd, timerfd, inotify. Waiting for one is what polling it is.
  if (mode != 0) return WaitKind::kPoll;
  return (state & kUninterruptible) ? WaitKind::kDisk : WaitKind::kOther;
}

}  // namespace

WaitKind wait_kind(int call, unsigned mode, unsigned state) {
  switch (call) {
    case -1:
      return WaitKind::kPageFault;
    case SYS_futex:
    case 449:  // futex_waitv, Linux 5.16
    case 455:  // futex_wait, Linux 6.7
      return WaitKind::kFutex;
    case SYS_read:
    case SYS_readv:
    case SYS_write:
    case SYS_writev:
      return of_file(mode, state);
    case SYS_pread64:
    case SYS_pwrite64:
    case SYS_preadv:
    case SYS_pwritev:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_sync:
    case SYS_syncfs:
    case SYS_sync_file_range:
    case SYS_ftruncate:
    case SYS_fallocate:
    case SYS_copy_file_range:
    case SYS_sendfile:
    case SYS_msync:
      return WaitKind::kDisk;
    case SYS_open:
    case SYS_openat:
    case SYS_stat:
    case SYS_newfstatat:
    case SYS_statx:
    case SYS_getdents64:
    case SYS_unlink:
    case SYS_unlinkat:
    case SYS_rename:
    case SYS_renameat2:
    case SYS_mkdir:
    case SYS_rmdir:
    case SYS_close:
    case SYS_flock:
      return (state & kUninterruptible) ? WaitKind::kDisk : WaitKind::kOther;
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
      return WaitKind::kSocket;
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case 441:  // epoll_pwait2, Linux 5.11
      return WaitKind::kPoll;
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
      return WaitKind::kSleep;
    case SYS_wait4:
    case SYS_waitid:
      return WaitKind::kChild;
    case SYS_pause:
    case SYS_rt_sigtimedwait:
    case SYS_rt_sigsuspend:
      return WaitKind::kSignal;
    case SYS_ioctl:
      return WaitKind::kDevice;
    case SYS_mmap:
    case SYS_munmap:
    case SYS_mprotect:
    case SYS_madvise:
    case SYS_mremap:
    case SYS_brk:
    case SYS_membarrier:
      return WaitKind::kMemory;
    case SYS_clone:
    case 435:  // clone3, Linux 5.3
    case SYS_fork:
    case SYS_vfork:
    case SYS_execve:
    case SYS_execveat:
    case SYS_exit:
    case SYS_exit_group:
      return WaitKind::kProcess;
    default:
      return WaitKind::kOther;
  }
}

WaitKind wait_kind(const dp_wait_event& event) {
  if (event.flags & DP_WAIT_MARK) return WaitKind::kNone;
  if (event.flags & DP_WAIT_PREEMPTED) return WaitKind::kPreempted;
  return wait_kind(event.call, event.mode, event.state);
}

}  // namespace dynprof
