// Marks that a thread waits for a system call that a target can delay: a read of its memory or of its files.
// The watch of a recording ends the program when one does not return (stuck_watch.h).
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace dynprof {

class AwaitingTarget {
 public:
  explicit AwaitingTarget(pid_t pid);
  ~AwaitingTarget();
  AwaitingTarget(const AwaitingTarget&) = delete;
  AwaitingTarget& operator=(const AwaitingTarget&) = delete;

  struct Wait {
    std::atomic<std::uint64_t> since_ns{0};  // 0: none
    std::atomic<pid_t> pid{0};
  };
  // More threads than these are not watched.
  static constexpr std::size_t kMaxThreads = 64;
  static std::array<Wait, kMaxThreads>& waits();

 private:
  Wait* wait_;
};

}  // namespace dynprof
