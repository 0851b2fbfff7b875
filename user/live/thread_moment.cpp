#include "user/live/thread_moment.h"

#include <chrono>
#include <utility>

#include "user/target/clock.h"

namespace dynprof {

ThreadMoment read_thread_moment(TargetView& view, TorchReader& torch, pid_t tid,
                                std::uint64_t tstate, Deadline deadline) {
  ThreadMoment moment;
  TorchMoment before = torch.read(tstate);
  bool steady = view.stacks.read(tid, tstate, deadline, moment.stack);
  const auto now_ns = static_cast<std::int64_t>(clock_ns(CLOCK_REALTIME));
  moment.torch = torch.read(tstate);
  view.names.read(moment.stack);
  moment.compile = torch.describe(moment.torch, moment.stack, now_ns);
  moment.consistent = steady && before == moment.torch;
  if (!moment.compile) return moment;
  moment.consistent = moment.consistent && !moment.torch.torn;
  UserCodeReading reading = read_user_code(view, moment.stack);
  if (reading.code.lines.empty()) return moment;
  auto now = view.stacks.again(tstate);
  bool holds = now && view.still_holds(reading.used, moment.stack, *now);
  // A line that was read off an object which may be gone by then is no line at all.
  if (holds) moment.user_code = std::move(reading.code);
  moment.consistent = moment.consistent && holds;
  return moment;
}

UserCode read_user_code_now(TargetView& view, SnapshotMemory& pages, std::uint64_t tstate,
                            Deadline deadline) {
  // A stack without user code is the usual case in Inductor; one that was read while it changed is rare.
  constexpr int kEmpty = 2;
  int empty = 0;
  do {
    auto stack = view.stacks.again(tstate);
    if (!stack) continue;
    pages.renew();  // the objects as they are while that stack stands
    view.names.read(*stack);
    UserCodeReading reading = read_user_code(view, *stack);
    if (reading.code.lines.empty()) {
      if (++empty == kEmpty) return {};
      continue;
    }
    auto now = view.stacks.again(tstate, *stack);
    if (now && view.still_holds(reading.used, *stack, *now)) return std::move(reading.code);
  } while (std::chrono::steady_clock::now() < deadline);
  return {};
}

}  // namespace dynprof
