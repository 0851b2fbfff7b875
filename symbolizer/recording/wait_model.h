// What a recording holds of time off the CPU: each long wait of a thread, and short ones of equal place
// summed up.
#pragma once

#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dynprof {

// What a thread waited for, by the system call it was in. X(name, number, text, system calls…): the number is that in
// the file, the text that of compiles.json. Calls whose kind depends on a file are in user/waits/wait_kind.cpp.
// Append only; numbers have no gaps.
#define DYNPROF_WAIT_KINDS(X)                                                                    \
  /* no wait: a mark that says how long the thread has been on a CPU by then */                  \
  X(kNone, 0, "none")                                                                            \
  X(kOther, 1, "other")         /* some other system call, or not known which */                 \
  X(kPreempted, 2, "preempted") /* not waiting: it could have run, and another thread did */     \
  /* a lock or a condition variable; futex_waitv (Linux 5.16), futex_wait (6.7) */               \
  X(kFutex, 3, "futex", SYS_futex, 449, 455)                                                     \
  X(kPipe, 4, "pipe")                                                                            \
  X(kSocket, 5, "socket", SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg,      \
    SYS_accept, SYS_accept4, SYS_connect)                                                        \
  /* with epoll_pwait2 (Linux 5.11) */                                                           \
  X(kPoll, 6, "poll", SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_wait,             \
    SYS_epoll_pwait, 441)                                                                        \
  /* a file's data, or its way to the disk */                                                    \
  X(kDisk, 7, "disk", SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_fsync,             \
    SYS_fdatasync, SYS_sync, SYS_syncfs, SYS_sync_file_range, SYS_ftruncate, SYS_fallocate,      \
    SYS_copy_file_range, SYS_sendfile, SYS_msync)                                                \
  X(kSleep, 8, "sleep", SYS_nanosleep, SYS_clock_nanosleep)                                      \
  X(kChild, 9, "child", SYS_wait4, SYS_waitid)                                                   \
  X(kPageFault, 10, "page fault") /* memory whose content had to be brought */                   \
  X(kTerminal, 11, "terminal")    /* a character device */                                       \
  X(kSignal, 12, "signal", SYS_pause, SYS_rt_sigtimedwait, SYS_rt_sigsuspend)                    \
  X(kDevice, 13, "device", SYS_ioctl)                                                            \
  /* the lock of the address space */                                                            \
  X(kMemory, 14, "memory", SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_mremap, SYS_brk, \
    SYS_membarrier)                                                                              \
  /* until the child has begun; with clone3 (Linux 5.3) */                                       \
  X(kProcess, 15, "process", SYS_clone, 435, SYS_fork, SYS_vfork, SYS_execve, SYS_execveat,      \
    SYS_exit, SYS_exit_group)

#define DYNPROF_WAIT_KIND(name, number, text, ...) name = number,
enum class WaitKind : std::uint8_t { DYNPROF_WAIT_KINDS(DYNPROF_WAIT_KIND) };
#undef DYNPROF_WAIT_KIND
#define DYNPROF_WAIT_KIND(name, number, text, ...) +1
inline constexpr std::size_t kWaitKinds = 0 DYNPROF_WAIT_KINDS(DYNPROF_WAIT_KIND);
#undef DYNPROF_WAIT_KIND
// "futex", "pipe", ...: as in compiles.json.
std::string_view wait_kind_text(WaitKind kind);

// Wait.flags
inline constexpr std::uint8_t kWaitAtAttach = 1;     // it had begun before: no stack
inline constexpr std::uint8_t kWaitAtEnd = 2;        // it goes on when the recording ends
inline constexpr std::uint8_t kWaitRootMissing = 4;  // the frames nearest to the root are not there
inline constexpr std::uint8_t kWaitUnmerged = 8;     // as kSampleUnmerged

struct Wait {
  std::uint64_t begin_ns = 0;     // of the first
  std::uint64_t span_ns = 0;      // from there to the end of the last
  std::uint64_t length_ns = 0;    // of all together, at most span_ns
  std::uint64_t runnable_ns = 0;  // of that, at their ends: it could have run, and no CPU was free
  std::uint64_t cpu_ns =
      0;  // time the thread was on a CPU until the end of the last, since we looked
  std::uint32_t thread = 0;   // ThreadId
  std::uint32_t stack = 0;    // StackId, 0: not known
  std::uint32_t context = 0;  // ContextId, of when the stack was taken
  WaitKind kind = WaitKind::kOther;
  std::uint32_t count = 1;
  std::uint8_t flags = 0;
  std::uint64_t end_ns() const { return begin_ns + span_ns; }
  bool operator==(const Wait&) const = default;
};

}  // namespace dynprof
