#include "cupti/names.h"

#include <sched.h>
#include <string.h>

#include "cupti/libc.h"
#include "cupti/probes.h"
#include "cupti/wire.h"

namespace dynprof_cupti {
namespace {

// Eight bytes at a time: kernel names are hundreds of bytes long, and each record has one.
std::uint64_t hash_of(const char* text, std::uint32_t length) {
  std::uint64_t hash = 0x9e3779b97f4a7c15u ^ length;
  std::uint64_t word = 0;
  for (; length >= 8; text += 8, length -= 8) {
    memcpy(&word, text, 8);
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  word = 0;
  memcpy(&word, text, length);
  hash = (hash ^ word) * 0xc4ceb9fe1a85ec53u;
  return hash ^ (hash >> 29);
}

// Held for some 100 ns by threads that CUPTI hands finished buffers to, hardly ever by two at a time.
class SpinLock {
 public:
  explicit SpinLock(std::atomic<bool>& flag) : flag_(flag) {
    while (flag_.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  ~SpinLock() { flag_.store(false, std::memory_order_release); }
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

bool Names::create() {
  if (arena_ != nullptr) return true;
  buckets_ = static_cast<std::uint32_t*>(map_pages(sizeof(std::uint32_t) * kBuckets));
  entries_ = static_cast<Entry*>(map_pages(sizeof(Entry) * kMax));
  if (buckets_ == nullptr || entries_ == nullptr) return false;
  arena_ = static_cast<char*>(map_pages(kArenaBytes));
  tables().names = reinterpret_cast<std::uintptr_t>(entries_);
  tables().text = reinterpret_cast<std::uintptr_t>(arena_);
  return arena_ != nullptr;
}

std::uint32_t Names::intern(const char* text) {
  if (text == nullptr || arena_ == nullptr) return 0;
  const auto length = static_cast<std::uint32_t>(strnlen(text, DYNPROF_GPU_MAX_NAME));
  if (length == 0) return 0;
  const std::uint64_t hash = hash_of(text, length);
  SpinLock lock(locked_);
  auto bucket = static_cast<std::uint32_t>(hash % kBuckets);
  while (buckets_[bucket] != 0) {
    const Entry& entry = entries_[buckets_[bucket] - 1];
    if (entry.hash == hash && entry.length == length &&
        memcmp(arena_ + entry.offset, text, length) == 0)
      return buckets_[bucket];
    bucket = (bucket + 1) % kBuckets;
  }
  return add(text, length, hash, bucket);
}

std::uint32_t Names::add(const char* text, std::uint32_t length, std::uint64_t hash,
                         std::uint32_t bucket) {
  const std::uint32_t count = count_.load(std::memory_order_relaxed);
  if (count == kMax || kArenaBytes - used_ < length) return 0;
  memcpy(arena_ + used_, text, length);
  entries_[count] = {hash, static_cast<std::uint32_t>(used_), length};
  used_ += length;
  buckets_[bucket] = count + 1;
  count_.store(count + 1, std::memory_order_release);
  __atomic_store_n(&tables().name_count, count + 1, __ATOMIC_RELEASE);
  return count + 1;
}

}  // namespace dynprof_cupti
