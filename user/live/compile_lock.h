// torch._dynamo.convert_frame.compile_lock: the one RLock of a process that a thread holds while it
// compiles. Who holds it, and who waits for it.
//
// rlockobject of _thread, the same on CPython 3.10.13, 3.11.2, 3.11.7, 3.12.1 and 3.13.0: the lock
// under it at 16 (a sem_t of glibc), the owner's pthread_self() at 24, how often it holds it at 32. A
// thread that waits is in futex(2) with the address of that semaphore.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "user/live/target_view.h"

namespace dynprof {

struct LockState {
  std::uint64_t semaphore = 0;
  std::uint64_t owner = 0;  // pthread_self() of the thread that holds it; 0: none
  std::uint64_t count = 0;
  bool operator==(const LockState&) const = default;
};

class CompileLock {
 public:
  explicit CompileLock(TargetView& view);

  // nullopt: there is none (torch._dynamo is not imported), or it is laid out otherwise (3.14).
  std::optional<LockState> state();
  // Whether a thread of the target waits for it; then who held it at that moment, 0 if that is not
  // known.
  std::optional<std::uint64_t> owner_waited_for(pid_t tid);

 private:
  TargetView& view_;
  std::uint64_t lock_ = 0;
};

}  // namespace dynprof
