// How fast a process launched while it was recorded.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dynprof {

class LaunchRate {
 public:
  void add(std::uint64_t time_ns) {
    if (launches_++ == 0) first_ns_ = time_ns;
    last_ns_ = std::max(last_ns_, time_ns);
  }
  // From the first launch to the last; 0: that is less than a second.
  std::uint64_t per_second() const {
    constexpr std::uint64_t kSecond = 1'000'000'000;
    const std::uint64_t ns = last_ns_ - std::min(first_ns_, last_ns_);
    if (ns < kSecond) return 0;
    return static_cast<std::uint64_t>(static_cast<double>(launches_) * kSecond /
                                      static_cast<double>(ns));
  }

 private:
  std::uint64_t launches_ = 0, first_ns_ = 0, last_ns_ = 0;
};

}  // namespace dynprof
