// At most so many traced calls per second, with bursts of a tenth of a second's worth; and which calls
// were left out, so that what they ran is left out too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cupti/libc.h"

namespace dynprof_cupti {

class RateCap {
 public:
  void set(std::uint64_t per_second) {
    if (per_second == 0) return;
    words_ = static_cast<std::atomic<std::uint32_t>*>(map_pages(kIds / 8));
    if (words_ != nullptr) interval_ns_ = 1'000'000'000u / per_second + 1;
  }

  bool allow(std::uint64_t now_ns, std::uint32_t correlation) {
    if (interval_ns_ == 0) return true;
    const bool allowed = take(now_ns);
    std::atomic<std::uint32_t>& word = words_[correlation % kIds / 32];
    const std::uint32_t bit = 1u << (correlation % 32);
    if (allowed)
      word.fetch_and(~bit, std::memory_order_relaxed);
    else
      word.fetch_or(bit, std::memory_order_relaxed);
    return allowed;
  }

  bool was_left_out(std::uint32_t correlation) const {
    if (interval_ns_ == 0) return false;
    const std::uint32_t word = words_[correlation % kIds / 32].load(std::memory_order_relaxed);
    return (word & 1u << (correlation % 32)) != 0;
  }

 private:
  // Ids grow by one with every CUDA call: a kernel whose launch lies further back is not expected.
  static constexpr std::size_t kIds = 1u << 22;
  static constexpr std::uint64_t kBurstNs = 100'000'000;

  // `next_ns_` is when the allowance of the calls so far is used up.
  bool take(std::uint64_t now_ns) {
    std::uint64_t next = next_ns_.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t after = (next > now_ns ? next : now_ns) + interval_ns_;
      if (after - now_ns > kBurstNs && next > now_ns) return false;
      if (next_ns_.compare_exchange_weak(next, after, std::memory_order_relaxed)) return true;
    }
  }

  std::uint64_t interval_ns_ = 0;
  std::atomic<std::uint64_t> next_ns_{0};
  std::atomic<std::uint32_t>* words_ = nullptr;
};

}  // namespace dynprof_cupti
