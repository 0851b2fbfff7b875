// The stacks of waits by the numbers the kernel side gave them, as long as a wait may refer to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "user/process/sample_encoder.h"

namespace dynprof {

class WaitStacks {
 public:
  void add(std::uint64_t number, const WaitStack& stack) {
    if (recent_.size() >= kMost) {
      older_ = std::exchange(recent_, {});
    }
    recent_[number] = stack;
  }
  // Null: it never came, or is long gone. One in use is kept.
  const WaitStack* find(std::uint64_t number) {
    if (auto at = recent_.find(number); at != recent_.end()) return &at->second;
    auto at = older_.find(number);
    if (at == older_.end()) return nullptr;
    const WaitStack stack = at->second;
    older_.erase(at);
    return &(recent_[number] = stack);
  }

 private:
  static constexpr std::size_t kMost = 1 << 18;  // minutes of new stacks at the highest rate
  std::unordered_map<std::uint64_t, WaitStack> recent_, older_;
};

}  // namespace dynprof
