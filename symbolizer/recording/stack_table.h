// (caller, frame) -> stack id: the look-up made for every frame of every sample, so one probe of 12
// bytes, nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "symbolizer/base/hash.h"
#include "symbolizer/recording/model.h"

namespace dynprof::recording {

class StackTable {
 public:
  // The id of `node`, or a reference's worth of 0 to be filled: *find(node) = id enters it, and
  // entered() must follow. Valid until then.
  StackId* find(const StackNode& node) {
    std::size_t at = hash(node) & mask();
    while (slots_[at].id != 0 &&
           (slots_[at].caller != node.caller || slots_[at].frame != node.frame)) {
      at = (at + 1) & mask();
    }
    slots_[at].caller = node.caller;
    slots_[at].frame = node.frame;
    return &slots_[at].id;
  }
  // Grows at 2/3 full.
  void entered() {
    if (++used_ * 3 <= slots_.size() * 2) return;
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id != 0) *find(StackNode{slot.caller, slot.frame}) = slot.id;
    }
  }
  std::size_t size() const { return used_; }
  void clear() {
    slots_ = std::vector<Slot>(kFirstSlots);
    used_ = 0;
  }

 private:
  struct Slot {
    StackId caller = 0;
    FrameId frame = 0;
    StackId id = 0;  // 0: free; stack 0 is never looked up
  };
  static constexpr std::size_t kFirstSlots = 4096;
  std::size_t mask() const { return slots_.size() - 1; }
  static std::uint64_t hash(const StackNode& node) {
    return hash_u64((std::uint64_t{node.caller} << 32) | node.frame);
  }

  std::vector<Slot> slots_ = std::vector<Slot>(kFirstSlots);
  std::size_t used_ = 0;
};

}  // namespace dynprof::recording
