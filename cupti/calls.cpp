#include "cupti/calls.h"

#include "cupti/cupti_abi.h"
#include "cupti/probes.h"
#include "cupti/rate_cap.h"
#include "cupti/state.h"

namespace dynprof_cupti {

#define DYNPROF_CALL(domain, cbid, name, call_class) \
  {DYNPROF_GPU_##domain, cbid, name, DYNPROF_GPU_CLASS_##call_class},
const TracedCall kTracedCalls[] = {
#include "cupti/calls_table.h"
};
#undef DYNPROF_CALL
const std::uint32_t kTracedCallCount = sizeof(kTracedCalls) / sizeof(kTracedCalls[0]);

namespace {

// 1 + the index into kTracedCalls, and the id of the name; by domain - 1 and callback id.
std::uint16_t traced_index[2][kCuptiMaxCbid];
std::uint32_t traced_name[2][kCuptiMaxCbid];

RateCap rate_cap;

struct OpenCall {
  std::uint64_t start_ns;  // 0: left out by the rate cap
  std::uint32_t call;
  std::uint32_t correlation;
};

// Calls this thread is in, outermost first. Initial-exec: the first use of a dynamic thread-local
// would call malloc, in the middle of somebody's launch.
struct ThreadCalls {
  static constexpr std::uint32_t kMaxDepth = 3;
  std::uint32_t session;
  std::uint32_t depth;
  std::int32_t thread;
  std::uint64_t sample_at_ns;  // the next launch from then on is a sampled one
  OpenCall open[kMaxDepth];
};
__attribute__((tls_model("initial-exec"))) thread_local ThreadCalls calls;

bool is_sampled(std::uint64_t now_ns, std::uint32_t correlation) {
  constexpr std::uint64_t kMeanNs = DYNPROF_GPU_SAMPLED_LAUNCH_NS;
  constexpr std::uint32_t kGolden = 2654435769u;  // spreads ids that follow each other
  if (now_ns < calls.sample_at_ns) return false;
  const std::uint64_t spread = std::uint64_t{correlation * kGolden} * kMeanNs >> 32;
  calls.sample_at_ns = now_ns + kMeanNs / 2 + spread;
  return true;
}

void enter(const CuptiCallbackData& data, std::uint32_t call) {
  const std::uint32_t correlation = data.correlation_id;
  if (calls.depth > 0 && calls.open[calls.depth - 1].correlation == correlation) return;
  // Exits that never came (tracing was switched off between the two).
  if (calls.depth == ThreadCalls::kMaxDepth) calls.depth = 0;
  const std::uint32_t flags = calls.depth > 0 ? DYNPROF_GPU_CALL_NESTED : 0;
  const std::uint64_t now = monotonic_ns();
  const bool allowed = rate_cap.allow(now, correlation);
  calls.open[calls.depth++] = {allowed ? now : 0, call, correlation};
  if (!allowed) {
    state.counters.dropped_rate.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  state.counters.calls.fetch_add(1, std::memory_order_relaxed);
  probe_launch(correlation, call, now, flags);
  if (samples_launches() && is_sampled(now, correlation))
    probe_sampled_launch(correlation, call, now, flags);
}

void record_call(const CuptiCallbackData& data, const OpenCall& open, std::uint32_t flags) {
  const std::uint32_t domain = DYNPROF_GPU_CALL_DOMAIN(open.call) - 1, cbid = open.call & 0xffffff;
  if (calls.thread == 0) calls.thread = thread_id();
  dynprof_gpu_record record{};
  record.kind = DYNPROF_GPU_CALL_RECORD;
  record.correlation = open.correlation;
  record.start_ns = open.start_ns;
  record.end_ns = monotonic_ns();
  record.device = ~0u;
  record.context = data.context_uid;
  record.name = traced_name[domain][cbid];
  record.thread = static_cast<std::uint32_t>(calls.thread);
  record.call.call = open.call;
  record.call.call_class = kTracedCalls[traced_index[domain][cbid] - 1].call_class;
  record.call.flags = flags;
  if (data.return_value) record.call.result = *static_cast<const std::int32_t*>(data.return_value);
  deliver(record);
}

void leave(const CuptiCallbackData& data, std::uint32_t call) {
  for (std::uint32_t i = calls.depth; i-- > 0;) {
    const OpenCall open = calls.open[i];
    if (open.call != call || open.correlation != data.correlation_id) continue;
    calls.depth = i;
    if (open.start_ns != 0) record_call(data, open, i > 0 ? DYNPROF_GPU_CALL_NESTED : 0);
    return;
  }
}

}  // namespace

void prepare_calls() {
  for (std::uint32_t i = 0; i < kTracedCallCount; ++i) {
    const TracedCall& traced = kTracedCalls[i];
    traced_index[traced.domain - 1][traced.cbid] = static_cast<std::uint16_t>(i + 1);
    traced_name[traced.domain - 1][traced.cbid] = state.names.intern(traced.name);
  }
}

void set_rate_cap(std::uint64_t calls_per_second) { rate_cap.set(calls_per_second); }

bool was_left_out(std::uint32_t correlation) { return rate_cap.was_left_out(correlation); }

void on_call(void*, std::uint32_t domain, std::uint32_t cbid, const void* data) {
  const std::uint32_t session = state.session.load(std::memory_order_acquire);
  if (session == 0 || data == nullptr) return;
  if (domain - 1 > 1 || cbid >= kCuptiMaxCbid || traced_index[domain - 1][cbid] == 0) return;
  if (calls.session != session) {
    calls.session = session;
    calls.depth = 0;
    calls.sample_at_ns = 0;
  }
  const auto& call = *static_cast<const CuptiCallbackData*>(data);
  if (call.site == kCuptiEnter)
    enter(call, DYNPROF_GPU_CALL(domain, cbid));
  else
    leave(call, DYNPROF_GPU_CALL(domain, cbid));
}

}  // namespace dynprof_cupti
