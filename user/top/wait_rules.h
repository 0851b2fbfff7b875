// What a thread that is off its CPU waits for, by the Python functions near the leaf of its stack, else by the
// system call it is in.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "user/top/reading.h"

namespace dynprof {

struct WaitFrame {
  std::string function;  // qualified name; CPython 3.10 has only its last part
  std::string file;
};

struct FoundWait {
  TopWait wait = TopWait::kNone;
  std::string text;  // of kOther
};

// `leaf_first`: the frames; only the first dozen is looked at. kNone: no rule knows them.
FoundWait wait_of_frames(std::span<const WaitFrame> leaf_first);
// The text of /proc/PID/task/TID/syscall in words: "a lock or a condition", "a read from a pipe"; "": the thread
// runs, or its call says nothing. `target_of` gives what a file descriptor is: the link of /proc/PID/fd/N.
std::string wait_of_system_call(std::string_view text, const std::string& descriptor_target);
// The descriptor that the call reads, writes or waits for; -1: it has none.
int descriptor_of_system_call(std::string_view text);

// Both, of a live thread.
FoundWait wait_of_thread(pid_t pid, pid_t tid, std::span<const WaitFrame> leaf_first);

}  // namespace dynprof
