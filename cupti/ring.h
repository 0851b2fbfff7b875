// Records on their way from any thread to the library's own: bounded, lock-free, many producers, one
// consumer. A full ring refuses; the caller counts.
#pragma once

#include <atomic>
#include <cstdint>

#include "cupti/libc.h"
#include "cupti/wire.h"

namespace dynprof_cupti {

class Ring {
 public:
  static constexpr std::uint64_t kBits = 16;
  static constexpr std::uint64_t kSlots = 1ull << kBits;  // 8.5 MiB, touched as they are used

  enum class Push : std::uint8_t { kDone, kDoneAndFilling, kFull };

  // Once, before the first push. False: no memory.
  bool create() {
    if (slots_ == nullptr) slots_ = static_cast<Slot*>(map_pages(sizeof(Slot) * kSlots));
    return slots_ != nullptr;
  }

  // kDoneAndFilling now and then: time to wake the consumer early.
  Push push(const dynprof_gpu_record& record) {
    std::uint64_t position = head_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[position & (kSlots - 1)];
      const std::uint64_t free_turn = 2 * (position >> kBits);
      const std::uint64_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn < free_turn) return Push::kFull;
      if (turn > free_turn) {
        position = head_.load(std::memory_order_relaxed);
      } else if (head_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
        slot.record = record;
        slot.turn.store(free_turn + 1, std::memory_order_release);
        return (position & (kSlots / 8 - 1)) == 0 ? Push::kDoneAndFilling : Push::kDone;
      }
    }
  }

  // Consumer only. False: empty, or the oldest record is still being written.
  bool pop(dynprof_gpu_record& record) {
    if (slots_ == nullptr) return false;
    for (;;) {
      Slot& slot = slots_[tail_ & (kSlots - 1)];
      const std::uint64_t full_turn = 2 * (tail_ >> kBits) + 1;
      if (slot.turn.load(std::memory_order_acquire) != full_turn) return false;
      const bool wanted = tail_ >= given_up_before_;
      if (wanted) record = slot.record;
      slot.turn.store(full_turn + 1, std::memory_order_release);
      ++tail_;
      if (wanted) return true;
    }
  }

  // Consumer only: something was pushed or is being pushed.
  bool pending() const { return head_.load(std::memory_order_acquire) != tail_; }

  // Consumer only: what was pushed or is being pushed so far will not be popped; how many records these are.
  std::uint64_t give_up() {
    const std::uint64_t from = tail_ > given_up_before_ ? tail_ : given_up_before_;
    given_up_before_ = head_.load(std::memory_order_acquire);
    return given_up_before_ - from;
  }

 private:
  // turn: 2 * lap while free for that lap of the ring, one more while it holds a record. Zeroed
  // memory is an empty ring.
  struct Slot {
    dynprof_gpu_record record;
    std::atomic<std::uint64_t> turn;
  };
  Slot* slots_ = nullptr;
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::uint64_t tail_ = 0;
  std::uint64_t given_up_before_ = 0;  // a position
};

}  // namespace dynprof_cupti
