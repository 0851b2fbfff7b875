#include "user/waits/wait_kind.h"

#include <sys/stat.h>
#include <sys/syscall.h>

#include <array>
#include <cstddef>
#include <initializer_list>

namespace dynprof {
namespace {

constexpr unsigned kUninterruptible = 2;

// By the number of the system call.
constexpr int kCalls = 512;
constexpr std::array<WaitKind, kCalls> kKinds = [] {
  std::array<WaitKind, kCalls> kinds;
  kinds.fill(WaitKind::kOther);
  const auto set = [&](WaitKind kind, std::initializer_list<std::size_t> calls) {
    for (std::size_t call : calls) {
      if (kinds.at(call) != WaitKind::kOther) throw "a system call is of two kinds";
      kinds[call] = kind;
    }
  };
#define DYNPROF_WAIT_KIND(name, number, text, ...) set(WaitKind::name, {__VA_ARGS__});
  DYNPROF_WAIT_KINDS(DYNPROF_WAIT_KIND)
#undef DYNPROF_WAIT_KIND
  return kinds;
}();

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
    case SYS_read:
    case SYS_readv:
    case SYS_write:
    case SYS_writev:
      return of_file(mode, state);
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
    default:
      return call >= 0 && call < kCalls ? kKinds[static_cast<std::size_t>(call)] : WaitKind::kOther;
  }
}

WaitKind wait_kind(const dp_wait_event& event) {
  if (event.flags & DP_WAIT_MARK) return WaitKind::kNone;
  if (event.flags & DP_WAIT_PREEMPTED) return WaitKind::kPreempted;
  return wait_kind(event.call, event.mode, event.state);
}

}  // namespace dynprof
