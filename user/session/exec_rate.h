// Whether programs are started so fast that each is examined less.
#pragma once

#include <cstdint>

namespace dynprof {

class ExecRate {
 public:
  // Counts one at this moment (CLOCK_MONOTONIC); false beyond kMost in a second.
  bool is_low(std::uint64_t time_ns) {
    if (time_ns - second_ns_ >= 1'000'000'000) {
      second_ns_ = time_ns;
      count_ = 0;
    }
    return count_++ < kMost;
  }

 private:
  static constexpr std::uint64_t kMost = 200;
  std::uint64_t second_ns_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace dynprof
