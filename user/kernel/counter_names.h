// The counters of the kernel side by the names they have in recordings (bpf/counters.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "user/kernel/kernel_side.h"

namespace dynprof {

// Those that are not 0.
inline std::map<std::string, std::uint64_t> named_counters(const Counters& counters) {
  static constexpr std::array<const char*, DP_COUNTER_COUNT> kNames = {
#define DYNPROF_NAME(id, name, sentence) name,
      DP_COUNTERS(DYNPROF_NAME)
#undef DYNPROF_NAME
  };
  std::map<std::string, std::uint64_t> named;
  for (std::size_t i = 0; i < counters.size(); i++)
    if (counters[i]) named[kNames[i]] = counters[i];
  return named;
}

}  // namespace dynprof
