#include "cupti/state.h"

#include "cupti/devices.h"
#include "cupti/libc.h"
#include "cupti/output.h"

namespace dynprof_cupti {

constinit State state;

namespace {
__attribute__((tls_model("initial-exec"))) thread_local bool is_worker = false;
}

void Counters::reset() {
  for (std::atomic<std::uint64_t>* counter :
       {&calls, &records, &dropped_ring, &dropped_rate, &dropped_rate_records, &dropped_cupti,
        &dropped_dump, &unnamed, &implausible_times, &unknown_records, &foreign_buffers})
    counter->store(0, std::memory_order_relaxed);
  refused_calls.store(0, std::memory_order_relaxed);
}

void wake_worker() {
  state.wake.fetch_add(1, std::memory_order_release);
  futex_wake(&state.wake);
}

void become_worker() { is_worker = true; }

void deliver(const dynprof_gpu_record& record) {
  if (is_worker) {
    append(record);
    return;
  }
  switch (state.ring.push(record)) {
    case Ring::Push::kDone:
      break;
    case Ring::Push::kDoneAndFilling:
      wake_worker();
      break;
    case Ring::Push::kFull:
      state.counters.dropped_ring.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace dynprof_cupti
