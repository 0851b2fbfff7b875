// Makes a thread of another process go through some code that saves and restores its registers by itself, and that
// takes the address to go on at from the base of GS (pending_stub.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "symbolizer/base/result.h"
#include "user/target/python_image.h"

namespace dynprof {

struct ThreadEntry {
  pid_t process = 0;
  pid_t thread = 0;
  std::uint64_t code = 0;  // where it goes
  // Functions, and the code of whole libraries, in which it may be anywhere; it enters the code from outside
  // of system calls only there.
  std::vector<AddressRange> functions, libraries;
  // Whether the process is still the one that was prepared.
  std::function<bool()> unchanged;
  // Whether no lock is held that the code takes; may be empty: it takes none that a thread could hold there. Asked before
  // the thread is stopped, which is not worth it while one is held, and again when it is.
  std::function<bool()> locks_free;
  // Whether the thread has come through; asked a few times right after it was let go, and may be false then.
  std::function<bool()> passed;
};

// Enters the code from a system call (one that the thread waits in and that can be continued, or the
// next one it makes), or from one of these functions, up to `patience` from now. Every stop is one of this thread alone, and the registers
// are changed by one call, after which the thread runs on. If this program ends at any moment before,
// the thread runs on as if nothing had been. Returns how long the thread was stopped, in ns, at most.
Result<std::uint64_t> enter_code(const ThreadEntry& entry, std::chrono::milliseconds patience,
                                 const std::function<bool()>& stop_requested);

}  // namespace dynprof
