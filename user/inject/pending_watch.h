// A pending call that was added, as its memory in the process shows it, and what the call is told there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "user/inject/pending_stub.h"
#include "user/target/remote_memory.h"

namespace dynprof {

class PendingWatch {
 public:
  PendingWatch(pid_t pid, const PendingData& data);

  // nullopt: there is no such memory, not yet or not any more.
  std::optional<PendingState> state();
  // Whether the thread has left the padding; if so, the call is told that this was seen.
  bool see_in_page();
  // Tells the call once the main thread, which added it, is surely out of the memory. To be called again and again.
  void see_gone();
  void cancel();
  std::string error_text();

 private:
  void write_flag(std::uint64_t offset);
  bool is_outside(std::uint64_t ran_ns) const;

  pid_t pid_;
  std::uint64_t token_, base_, address_;
  ProcessMemory memory_;
  bool seen_ = false, gone_ = false;
  std::optional<std::uint64_t> ran_when_left_ns_;
};

}  // namespace dynprof
