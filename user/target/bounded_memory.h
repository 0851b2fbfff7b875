// Memory of a process that can be read only so often and so much: however objects point at each other,
// reading them comes to an end. What is over the limit reads as if it were not mapped.
#pragma once

#include <cstddef>

#include "user/target/remote_memory.h"

namespace dynprof {

class BoundedMemory final : public RemoteMemory {
 public:
  BoundedMemory(RemoteMemory& memory, std::size_t calls, std::size_t bytes)
      : memory_(memory), calls_(calls), bytes_(bytes) {}

  void read_many(std::span<RemoteRange> ranges) override {
    std::size_t wanted = 0;
    for (RemoteRange& range : ranges) {
      range.done = 0;
      wanted += range.into.size();
    }
    exhausted_ = exhausted_ || calls_ == 0 || wanted > bytes_;
    if (exhausted_) return;
    --calls_;
    bytes_ -= wanted;
    memory_.read_many(ranges);
  }

  bool exhausted() const { return exhausted_; }

 private:
  RemoteMemory& memory_;
  std::size_t calls_;
  std::size_t bytes_;
  bool exhausted_ = false;
};

}  // namespace dynprof
