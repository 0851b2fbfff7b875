// CUPTI's callbacks at the entry and exit of CUDA calls: the USDT probe at the entry, a record at the
// exit.
#pragma once

#include <cstdint>

namespace dynprof_cupti {

struct TracedCall {
  std::uint32_t domain;
  std::uint32_t cbid;
  const char* name;
  std::uint32_t call_class;
};
extern const TracedCall kTracedCalls[];
extern const std::uint32_t kTracedCallCount;

void prepare_calls();                               // once: interns their names
void set_rate_cap(std::uint64_t calls_per_second);  // 0: none. Before the first session.

// The callback; its signature is CuptiCallback.
void on_call(void* user, std::uint32_t domain, std::uint32_t cbid, const void* data);

// A call with this correlation id was left out by the rate cap.
bool was_left_out(std::uint32_t correlation);

}  // namespace dynprof_cupti
