// torch._dynamo.convert_frame.compile_lock: the one RLock of a process that a thread holds while it
// compiles. Who holds it, and who waits for it.
//
// rlockobject of _thread: the lock under it at 16, the owner's pthread_self() at 24, how often it holds it
// at 32. A thread that waits is in futex(2):
// - CPython 3.10 to 3.13 (3.10.13, 3.11.2, 3.11.7, 3.12.1, 3.13.0): the lock is a pointer to a sem_t of
//   glibc, and the futex is that semaphore.
// - 3.14 and later (3.14.10, 3.15.2): the lock is a PyMutex, one byte; the futex is the semaphore in the
//   waiting thread's struct wait_entry (Python/parking_lot.c), just behind the address of the mutex.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "user/live/target_view.h"

namespace dynprof {

struct LockState {
  std::uint64_t lock = 0;   // address of the semaphore or mutex
  std::uint64_t owner = 0;  // pthread_self() of the thread that holds it; 0: none
  std::uint64_t count = 0;
  bool operator==(const LockState&) const = default;
};

class CompileLock {
 public:
  explicit CompileLock(TargetView& view);

  // nullopt: there is none (torch._dynamo is not imported).
  std::optional<LockState> state();
  // Whether a thread of the target waits for it; then who held it at that moment, 0 if that is not
  // known.
  std::optional<std::uint64_t> owner_waited_for(pid_t tid);

 private:
  TargetView& view_;
  bool is_mutex_;
  std::uint64_t lock_ = 0;
};

}  // namespace dynprof
