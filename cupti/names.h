// Kernel, call and device names, each stored once and known by a number from then on. Compared by
// content: an unloaded module's memory is used again for other names.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cupti/wire.h"

namespace dynprof_cupti {

class Names {
 public:
  static constexpr std::uint32_t kMax = 32768;
  static constexpr std::size_t kArenaBytes = 16u << 20;

  bool create();  // once, before the first intern; false: no memory

  // Any thread. 0: nullptr, an empty name, or no room left (the caller's text distinguishes them).
  std::uint32_t intern(const char* text);

  // Ids are 1 … count(). text() is for ids that count() covered.
  std::uint32_t count() const { return count_.load(std::memory_order_acquire); }
  const char* text(std::uint32_t id) const { return arena_ + entries_[id - 1].offset; }
  std::uint32_t length(std::uint32_t id) const { return entries_[id - 1].length; }

 private:
  using Entry = dynprof_gpu_name_entry;
  static constexpr std::uint32_t kBuckets = 2 * kMax;

  std::uint32_t add(const char* text, std::uint32_t length, std::uint64_t hash,
                    std::uint32_t bucket);

  std::uint32_t* buckets_ = nullptr;  // ids, open addressing
  Entry* entries_ = nullptr;
  char* arena_ = nullptr;
  std::size_t used_ = 0;
  std::atomic<std::uint32_t> count_{0};
  std::atomic<bool> locked_{false};
};

}  // namespace dynprof_cupti
