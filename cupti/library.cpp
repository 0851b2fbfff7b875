// The library's life: loaded by the CUDA driver (CUDA_INJECTION64_PATH) or by hand, idle until a
// profiler raises the switch, off again when it is lowered. One thread of its own does all the work.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "cupti/calls.h"
#include "cupti/devices.h"
#include "cupti/libc.h"
#include "cupti/output.h"
#include "cupti/probes.h"
#include "cupti/session.h"
#include "cupti/state.h"
#include "cupti/subscription.h"

namespace dynprof_cupti {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kIdlePollNs = 100 * kMillisecond;
constexpr std::uint64_t kBusyPollNs = 20 * kMillisecond;
constexpr std::uint64_t kRetryNs = 2000 * kMillisecond;
constexpr std::uint64_t kStatusNs = 1000 * kMillisecond;
constexpr std::uint64_t kExitPatienceNs = 2000 * kMillisecond;
constexpr std::uint32_t kNothingReported = ~0u;

std::atomic<bool> started{false};
std::atomic<bool> exiting{false};
std::atomic<bool> using_cupti{false};  // from before the subscription until after its end
std::atomic<std::uint32_t> idle{0};    // the exit handler's futex: grows when using_cupti falls

struct Worker {
  bool on = false;
  bool dump_always = false;
  std::uint16_t attached = 0;
  std::uint32_t reported_code = kNothingReported;
  std::uint32_t reported_detail = 0;
  std::uint64_t retry_at = 0;
  std::uint64_t status_at = 0;
};
Worker worker;

// exit() runs handlers last registered first. Registered after CUPTI was loaded, this one runs before
// CUPTI's own, which frees what our calls would use.
void at_exit() {
  if (state.forked.load()) return;
  exiting.store(true);
  const std::uint64_t give_up = monotonic_ns() + kExitPatienceNs;
  while (using_cupti.load()) {
    const std::uint32_t seen = idle.load();
    const std::uint64_t now = monotonic_ns();
    if (!using_cupti.load() || now >= give_up) break;
    wake_worker();
    futex_wait(&idle, seen, give_up - now);
  }
  state.session.store(0);
  state.collecting.store(false);
}

void in_forked_child() {
  state.forked.store(true);
  state.session.store(0);
  state.collecting.store(false);
}

void about_to_subscribe() {
  static bool registered = false;
  if (!registered) atexit(at_exit);
  registered = true;
}

void report(std::uint32_t code, std::uint32_t detail) {
  worker.reported_code = code;
  worker.reported_detail = detail;
  worker.status_at = monotonic_ns() + kStatusNs;
  if (code == DYNPROF_GPU_BUSY) send_holder(holder());
  send_status(code, detail, cupti_version(), session_number());
}

void report_change(std::uint32_t code, std::uint32_t detail) {
  if (code != worker.reported_code || detail != worker.reported_detail) report(code, detail);
}

void no_longer_using_cupti() {
  using_cupti.store(false);
  idle.fetch_add(1);
  futex_wake(&idle);
}

void start() {
  // Together with at_exit's order of the same two: never both "exiting unseen" and "use unseen".
  using_cupti.store(true);
  if (exiting.load()) return no_longer_using_cupti();
  if (worker.reported_code == kNothingReported) report(DYNPROF_GPU_STARTING, 0);
  const StartResult result = start_session(about_to_subscribe);
  worker.on = result.code == DYNPROF_GPU_ON;
  if (!worker.on) {
    // Whether CUPTI is mapped by now costs little to ask.
    const bool absent = result.code == DYNPROF_GPU_NO_CUPTI;
    worker.retry_at = absent ? 0 : monotonic_ns() + kRetryNs;
    no_longer_using_cupti();
  }
  report_change(result.code, result.detail);
}

void stop() {
  stop_session();
  worker.on = false;
  report(DYNPROF_GPU_OFF, 0);
  no_longer_using_cupti();
}

// Another profiler has come: it knows no names yet.
void greet() {
  replay_names();
  replay_devices();
  if (worker.reported_code != kNothingReported)
    report(worker.reported_code, worker.reported_detail);
}

void look() {
  const std::uint16_t attached = profilers_attached();
  if (attached > worker.attached && worker.attached != 0) greet();
  worker.attached = attached;
  const bool wanted = (attached > 0 || worker.dump_always) && !exiting.load();
  if (!wanted) {
    if (worker.on) stop();
    worker.reported_code = kNothingReported;
    worker.retry_at = 0;
  } else if (!worker.on) {
    if (monotonic_ns() >= worker.retry_at) start();
  } else {
    run_session();
    if (monotonic_ns() >= worker.status_at) report(DYNPROF_GPU_ON, 0);
  }
}

// DYNPROF_GPU_DUMP_MODE=attached: the file gets what a profiler gets, and only while there is one.
void prepare_dump() {
  const char* path = environment_text("DYNPROF_GPU_DUMP");
  if (path == nullptr) return;
  const int error = open_dump(path);
  if (error != 0) return send_status(DYNPROF_GPU_NO_DUMP, static_cast<std::uint32_t>(error), 0, 0);
  const char* mode = environment_text("DYNPROF_GPU_DUMP_MODE");
  worker.dump_always = mode == nullptr || strcmp(mode, "attached") != 0;
}

void* work(void*) {
  prctl(PR_SET_NAME, "dynprof-gpu");
  become_worker();
  if (!state.ring.create() || !state.names.create()) return nullptr;
  prepare_calls();
  set_rate_cap(environment_number("DYNPROF_GPU_MAX_CALLS_PER_SECOND", 0));
  prepare_dump();
  for (;;) {
    const std::uint32_t seen = state.wake.load(std::memory_order_acquire);
    const bool last = exiting.load();  // before look(), which has to see it too
    look();
    if (last) return nullptr;
    futex_wait(&state.wake, seen, worker.on ? kBusyPollNs : kIdlePollNs);
  }
}

}  // namespace
}  // namespace dynprof_cupti

// What the CUDA driver calls in cuInit, and an injector after dlopen. 1: loaded. Any number of times.
extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  using namespace dynprof_cupti;
  if (started.exchange(true)) return 1;
  if (!threads_and_libraries_available()) return 1;
  pthread_atfork(nullptr, nullptr, in_forked_child);
  start_thread(work);
  return 1;
}
