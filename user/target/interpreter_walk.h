// Interpreters and thread states, walked once from outside: to refuse offsets that make no sense
// before the kernel side uses them, and to learn where a thread keeps its PyThreadState.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "user/target/remote_objects.h"

namespace dynprof {

struct RemoteThread {
  std::uint64_t tstate = 0;
  std::uint64_t interpreter = 0;
  std::uint64_t pthread = 0;    // PyThreadState.thread_id: pthread_self(), glibc's fs base
  std::uint64_t native_id = 0;  // tid in the target's pid namespace; 0 on 3.10
};

struct RemoteInterpreter {
  std::uint64_t address = 0;
  std::int64_t id = -1;  // 0: the main one
  std::size_t threads = 0;
};

struct InterpreterWalk {
  std::vector<RemoteInterpreter> interpreters;
  std::vector<RemoteThread> threads;
  std::string problem;  // not empty: the offsets do not fit this process

  const RemoteInterpreter* main() const;
};

// Never fails on a list that changes under us: what is torn is left out.
InterpreterWalk walk_interpreters(RemoteObjects& objects, std::uint64_t runtime);

// A frame, as it stands in its thread.
struct RemoteFrame {
  static constexpr std::int32_t kNotBegun = -1;          // at its first line
  static constexpr std::int32_t kNowhere = 0x7fff'ffff;  // not inside its code object: no line
  std::uint64_t frame = 0;
  std::uint64_t code = 0;
  std::int32_t unit = kNotBegun;  // its instruction, in code units of 2 bytes
  bool operator==(const RemoteFrame&) const = default;
};
// The frames of a thread, leaf first, at most `limit` of them. nullopt when torn. `cut_off`: the frames
// of the topmost eval-loop call do not lead to the call below it (3.11, 3.12). The kernel side begins
// again from there; in a thread that runs on it means that most likely the walk was torn.
std::optional<std::vector<RemoteFrame>> walk_frames(RemoteObjects& objects, std::uint64_t tstate,
                                                    std::size_t limit, bool* cut_off = nullptr);

// glibc's struct pthread (nptl/descr.h): specific_1stblock, 32 pairs of sequence and value.
inline constexpr std::int32_t kPthreadKeys = 784;
inline constexpr std::int32_t kPthreadKeyBytes = 16;
inline constexpr std::int32_t kPthreadKeysInline = 32;

// Where, from its fs base, each thread of the main interpreter keeps its PyThreadState. The
// thread-specific key is preferred to the thread-local variable, which is NULL in a thread that does
// not hold the GIL. nullopt when no offset suits most threads.
struct ThreadStateOffset {
  std::int32_t offset = 0;
  // From 3.15 on the thread's own state is in a thread-local variable too, and threads that hold the GIL
  // have it in both: the other one, where they cannot be told apart; 0: none.
  std::int32_t other = 0;
  std::size_t agree = 0;  // threads that have it there
  std::size_t asked = 0;  // threads with a readable fs base
};
std::optional<ThreadStateOffset> find_tstate_offset(RemoteMemory& memory,
                                                    std::span<const RemoteThread> threads,
                                                    std::uint64_t main_interpreter);

// Whether `address` is a thread's fs base: the head of a thread control block points at itself.
bool is_thread_pointer(RemoteMemory& memory, std::uint64_t address);

}  // namespace dynprof
