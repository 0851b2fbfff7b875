#include "cupti/session.h"

#include "cupti/activity.h"
#include "cupti/calls.h"
#include "cupti/cupti.h"
#include "cupti/devices.h"
#include "cupti/libc.h"
#include "cupti/output.h"
#include "cupti/state.h"
#include "cupti/subscription.h"

namespace dynprof_cupti {
namespace {

// Peer copies and waits are a bonus: a CUPTI may refuse them. Waits make every CUDA call of the process slower, those that
// start nothing too, until it ends (0.4 us with CUDA 13.0): only on demand.
struct Kind {
  std::uint32_t kind;
  bool needed;
  const char* on_demand = nullptr;  // by this variable in the environment of the process
};
constexpr Kind kKinds[] = {{kCuptiKindConcurrentKernel, true},
                           {kCuptiKindMemcpy, true},
                           {kCuptiKindMemset, true},
                           {kCuptiKindMemcpyPeer, false},
                           {kCuptiKindSynchronization, false, "DYNPROF_GPU_WAITS"}};
constexpr std::uint64_t kFlushEveryNs = 100'000'000;
constexpr std::uint64_t kDrainNs = 500'000'000;
constexpr std::uint64_t kDrainPollNs = 1'000'000;

std::uint32_t version = 0;
std::uint32_t sessions = 0;
std::uint64_t flushed_at = 0;

StartResult failure(CuptiResult result) {
  const bool busy = result == static_cast<CuptiResult>(kCuptiMultipleSubscribers);
  return {busy ? DYNPROF_GPU_BUSY : DYNPROF_GPU_FAILED, static_cast<std::uint32_t>(result)};
}

void enable_calls(std::uint32_t enable) {
  for (std::uint32_t i = 0; i < kTracedCallCount; ++i) {
    const TracedCall& call = kTracedCalls[i];
    const CuptiResult result = enable_call(enable, call.domain, call.cbid);
    if (enable && result != kCuptiSuccess)
      state.counters.refused_calls.fetch_add(1, std::memory_order_relaxed);
  }
}

void disable_kinds() {
  for (const Kind& kind : kKinds) disable_kind(kind.kind);
}

CuptiResult enable_activity() {
  CuptiResult result = prepare_activity();
  for (const Kind& kind : kKinds) {
    if (result != kCuptiSuccess) break;
    if (kind.on_demand != nullptr && environment_number(kind.on_demand, 0) == 0) continue;
    const CuptiResult enabled = enable_kind(kind.kind);
    if (kind.needed) result = enabled;
  }
  return result;
}

// Records of a session that has ended are not part of the next one.
void give_up_pushed() {
  state.counters.dropped_ring.fetch_add(state.ring.give_up(), std::memory_order_relaxed);
}

void begin_collecting() {
  ++sessions;
  state.counters.reset();
  give_up_pushed();
  state.session_start_ns = monotonic_ns();
  flushed_at = state.session_start_ns;
  keep_buffers(false);
  forget_devices();
  replay_names();
  state.collecting.store(true, std::memory_order_release);
}

void end_collecting() {
  state.session.store(0, std::memory_order_release);
  state.collecting.store(false, std::memory_order_release);
}

// A thread that is not running may be in the middle of a push, with what other threads pushed behind it. So this waits by
// the clock: on a busy machine such a thread may have to wait for a CPU for tens of milliseconds.
void drain_to_the_end() {
  const std::uint32_t never_changes = 0;
  const std::uint64_t give_up_at = monotonic_ns() + kDrainNs;
  drain_ring();
  while (state.ring.pending() && monotonic_ns() < give_up_at) {
    futex_wait(&never_changes, 0, kDrainPollNs);
    drain_ring();
  }
  give_up_pushed();
}

}  // namespace

std::uint32_t session_number() { return sessions; }
std::uint32_t cupti_version() { return version; }

StartResult start_session(void (*about_to_subscribe)()) {
  const CuptiFound found = find_cupti();
  if (found == CuptiFound::kNo) return {DYNPROF_GPU_NO_CUPTI, 0};
  if (found == CuptiFound::kIncomplete) return {DYNPROF_GPU_TOO_OLD, 0};
  about_to_subscribe();
  CuptiResult result = cupti.cuptiGetVersion(&version);
  if (result != kCuptiSuccess) return failure(result);
  if (version < kOldestCupti) return {DYNPROF_GPU_TOO_OLD, version};
  // May take seconds on a busy machine.
  result = subscribe(on_call);
  if (result != kCuptiSuccess) return failure(result);
  begin_collecting();
  result = enable_activity();
  if (result != kCuptiSuccess) {
    disable_kinds();
    unsubscribe();
    end_collecting();
    return failure(result);
  }
  state.session.store(sessions, std::memory_order_release);
  enable_calls(1);
  return {DYNPROF_GPU_ON, 0};
}

void stop_session() {
  enable_calls(0);
  keep_buffers(true);
  if (lent_buffers() > 0) flush(true);
  disable_kinds();
  unsubscribe();
  // No cuptiFinalize: CUDA graphs do not survive it (PyTorch pull request 150957).
  end_collecting();
  drain_to_the_end();
  send_new_devices();
  send_batch();
}

void run_session() {
  drain_ring();
  const std::uint64_t now = monotonic_ns();
  if (now - flushed_at >= kFlushEveryNs && lent_buffers() > 0) {
    measure_clock();
    flush(false);
    flushed_at = now;
  }
  send_new_devices();
  send_batch();
}

}  // namespace dynprof_cupti
