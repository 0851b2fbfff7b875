// Losses of a session that the kernel side does not count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "user/kernel/event_view.h"
#include "user/kernel/kernel_side.h"
#include "user/process/followed_process.h"

namespace dynprof {

struct SessionLosses {
  std::uint64_t malformed = 0;
  std::uint64_t unmerged = 0;
  std::uint64_t wait_stacks = 0;

  // A process that is no longer followed.
  void add(const FollowedProcess& process) {
    unreadable_codes += process.python().unreadable_codes();
    edges += process.tracer().watch().lost_edges();
    inline_late += process.tracer().watch().armed_late();
  }
  // An event for which there was no time left.
  void unread(std::span<const std::byte> bytes) {
    const auto header = event_header(bytes);
    if (header && header->kind == DP_EVENT_SAMPLE) ++unread_samples;
    if (header && (header->kind == DP_EVENT_WAIT || header->kind == DP_EVENT_WAIT_STACK))
      ++unread_waits;
  }
  void fill(Counters& counters) const {
    counters[DP_COUNT_RING_FULL] += unread_samples;
    counters[DP_COUNT_WAIT_RING_FULL] += unread_waits;
    counters[DP_COUNT_EDGE_LOST] = edges;
    counters[DP_COUNT_INLINE_LATE] = inline_late;
    counters[DP_COUNT_UNREADABLE_CODE] = unreadable_codes;
    counters[DP_COUNT_MALFORMED_EVENT] = malformed;
    counters[DP_COUNT_UNMERGED] = unmerged;
    counters[DP_COUNT_WAIT_STACK_LOST] = wait_stacks;
  }

  std::uint64_t unreadable_codes = 0, edges = 0, inline_late = 0;
  std::uint64_t unread_samples = 0, unread_waits = 0;
};

}  // namespace dynprof
