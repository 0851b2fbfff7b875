// The code that a thread of a process runs to add a pending call to its interpreter, and the call itself, which
// loads a library. It takes no stop but the one in which it is begun: it saves the registers on the thread's stack, maps its
// own memory, restores what it changed and goes on where the thread was, so the thread runs on correctly whatever
// becomes of this program meanwhile.
//
// It is entered with the registers of the thread but the instruction pointer, which is in the base address of GS:
// what uses GS on x86-64 cannot be entered. So nothing has to be written to the process while the thread is stopped; that would
// wait for its other threads' mmap and munmap.
//
// Three parts, written one after the other into unused padding of the process's code (code_padding.h):
//   entry  maps kMappingBytes at `base`, copies the other two there, and jumps to `base`
//   page   adds the pending call and resumes the thread; and the pending call
//   data   PendingData
// The mapping: a page of code, a page of data, a stack. It is shared memory, so that it is not merged with
// a neighbour (then its removal cannot fail) and a forked child sees the flag `cancel`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"

namespace dynprof {

inline constexpr std::uint64_t kMappingBytes = 0x10000;
inline constexpr std::uint64_t kDataOffset = 0x1000;  // of PendingData in the mapping

enum class PendingState : std::uint32_t {
  kNothing = 0,
  kInPage = 1,   // the padding is not used any more
  kAdded = 2,    // it waits for a safe point
  kFull = 3,     // the interpreter has no room for another pending call
  kLoading = 4,  // it has begun, and `cancel` is not looked at any more
  kLoaded = 5,  // the mapping is removed: by the main thread once `seen` is set, or a moment later;
                // by any other one if `gone` is set until then
  kFailed = 6,  // `error` says why; the mapping stays
  kCancelled = 7,  // the same
};

struct PendingData {
  std::uint64_t token;  // random: tells this memory from any other that may be there
  std::uint64_t base;
  PendingState state;
  std::uint32_t cancel;
  std::uint32_t process;  // its own pid: a forked child does nothing
  std::uint32_t copied;   // bytes of this that are filled in
  std::uint64_t add_pending_call, dlopen, dlsym, dlerror, munmap, save_thread, restore_thread;
  std::uint64_t stack;  // of the thread, with its registers
  // Its first argument, then the function, this, and 0: any thread may make the call. 0: add_pending_call takes the
  // function and this alone.
  std::uint64_t interpreter;
  char function[24];
  char library[640];
  // Not copied.
  char error[240];
  std::uint32_t seen;  // this program knows that the padding is not used any more
  std::uint32_t gone;  // ... and that the thread is out of this memory
  std::uint32_t left;  // the thread has one instruction here before it
  std::uint32_t unused;
};
static_assert(offsetof(PendingData, seen) == 1008 && offsetof(PendingData, state) == 16 &&
              offsetof(PendingData, process) == 24 &&
              offsetof(PendingData, add_pending_call) == 32 && offsetof(PendingData, stack) == 88 &&
              offsetof(PendingData, interpreter) == 96 && offsetof(PendingData, function) == 104 &&
              offsetof(PendingData, library) == 128 && offsetof(PendingData, error) == 768 &&
              sizeof(PendingData) == 1024);

// All three parts. `data` is copied up to the end of the library's path.
std::vector<std::byte> pending_stub(const PendingData& data);

// Whether this CPU can save what a call may change, in the room that there is for it.
Result<void> check_saved_state();

}  // namespace dynprof
