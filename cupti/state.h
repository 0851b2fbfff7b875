// What the parts of the library share. Everything is static memory: nothing is ever freed, because
// threads may still be in a callback when tracing ends, and at exit.
#pragma once

#include <atomic>
#include <cstdint>

#include "cupti/names.h"
#include "cupti/ring.h"
#include "cupti/wire.h"

namespace dynprof_cupti {

struct Counters {
  std::atomic<std::uint64_t> calls, records, dropped_ring, dropped_rate, dropped_rate_records,
      dropped_cupti, dropped_dump, unnamed, implausible_times, unknown_records, foreign_buffers;
  std::atomic<std::uint32_t> refused_calls;
  void reset();
};

struct State {
  // The session callbacks belong to; 0: they return at once.
  std::atomic<std::uint32_t> session{0};
  // Finished buffers are read (true a little longer than `session` is set).
  std::atomic<bool> collecting{false};
  std::uint64_t session_start_ns = 0;
  // Set by the child of a fork, for good: CUDA does not work there, nor has it our thread.
  std::atomic<bool> forked{false};
  std::atomic<std::uint32_t> wake{0};  // the worker's futex
  Ring ring;
  Names names;
  Counters counters;
};
extern State state;

void wake_worker();

// Makes this thread the worker: what it delivers goes straight into the batch.
void become_worker();

// From any thread, without blocking: into the batch or the ring; counted when there is no room.
void deliver(const dynprof_gpu_record& record);

}  // namespace dynprof_cupti
