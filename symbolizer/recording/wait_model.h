// What a recording holds of time off the CPU: each long wait of a thread, and short ones of equal place
// summed up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dynprof {

// What a thread waited for, by the system call it was in. Append only; the order is that of the
// file.
enum class WaitKind : std::uint8_t {
  kNone = 0,       // no wait: a mark that says how long the thread has been on a CPU by then
  kOther = 1,      // some other system call, or not known which
  kPreempted = 2,  // not waiting: it could have run, and another thread did
  kFutex = 3,      // a lock or a condition variable
  kPipe = 4,
  kSocket = 5,
  kPoll = 6,  // poll, select, epoll_wait
  kDisk = 7,  // a file's data, or its way to the disk
  kSleep = 8,
  kChild = 9,       // wait4, waitid
  kPageFault = 10,  // memory whose content had to be brought
  kTerminal = 11,   // a character device
  kSignal = 12,     // pause, sigtimedwait
  kDevice = 13,     // ioctl
  kMemory = 14,     // mmap, munmap and such: the lock of the address space
  kProcess = 15,    // clone, vfork, execve: until the child has begun
};
inline constexpr std::size_t kWaitKinds = 16;
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
