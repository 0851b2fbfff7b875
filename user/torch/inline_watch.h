// The user functions that Dynamo traces on one thread, by two hardware watchpoints on the function that
// torch enters for each of them. While a data watchpoint is armed its thread's page faults and string
// instructions are slower on some processors, and its switches on a virtual machine (docs/development/overhead.md). So
// they are armed from the begin of a compile, or of another attempt, until Dynamo has traced the function.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "symbolizer/base/result.h"
#include "user/kernel/kernel_side.h"
#include "user/torch/inlined_calls.h"

namespace dynprof {

class InlineWatch {
 public:
  InlineWatch() = default;
  ~InlineWatch() { close(); }
  InlineWatch(const InlineWatch&) = delete;
  InlineWatch& operator=(const InlineWatch&) = delete;

  // The thread's phases, in torch's names.
  void phase_begins(std::string_view name);
  void phase_ends(std::string_view name, bool outermost);
  // Dynamo traces, or will soon.
  bool wanted() const { return stage_ != Stage::kIdle; }
  bool tracing() const { return stage_ == Stage::kTracing; }

  // Sets the watchpoints, not armed. An error says why this thread has none; it is not tried again.
  Result<void> prepare(pid_t tid, const dp_torch_layout& torch, KernelSide& kernel);
  // Arms or disarms as wanted() since `time_ns`, after prepare() where that is still to be done.
  Result<void> update(pid_t tid, const dp_torch_layout& torch, KernelSide& kernel,
                      std::uint64_t time_ns);
  // Were the watchpoints not armed yet at that moment? False where there are none, or it is too long ago.
  bool late(std::uint64_t time_ns) const {
    return armer_ && !armer_->armed_at(tid_, time_ns).value_or(true);
  }
  // No more: too many calls, or the recording ends.
  void close();

  InlinedCalls calls;  // being traced now

 private:
  enum class Stage : std::uint8_t { kIdle, kExpected, kTracing };
  Result<void> open(pid_t tid, const dp_torch_layout& torch, KernelSide& kernel);

  Stage stage_ = Stage::kIdle;
  bool given_up_ = false;
  pid_t tid_ = 0;
  WatchArmer* armer_ = nullptr;  // null: no watchpoints
  Watchpoint begin_, end_;       // armed together: no call begins whose end is not seen
};

}  // namespace dynprof
