// When a recording ends, and the reason that is reported.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace dynprof {

struct StopRules {
  std::function<bool()> requested;            // Ctrl-C
  std::function<bool()> disk_is_nearly_full;  // asked a few times a second
  std::uint64_t duration_ns = 0;              // 0: as long as it takes
  std::uint64_t max_bytes = 0;                // 0: no limit

  // How late a limit of space may be noticed.
  static constexpr std::uint64_t kSpaceCheckNs = 200'000'000;

  struct State {
    std::uint64_t now_ns = 0;
    std::uint64_t sampled_ns = 0;
    std::uint64_t bytes = 0;
    bool write_failed = false;
    bool targets_ended = false;
  };
  // "": it continues.
  std::string reason(const State& state) {
    if (state.write_failed) return "write failed";
    if (requested && requested()) return "interrupted";
    if (duration_ns && state.sampled_ns >= duration_ns) return "duration";
    if (max_bytes && state.bytes >= max_bytes) return "size limit";
    if (disk_is_nearly_full && state.now_ns >= next_space_check_ns) {
      next_space_check_ns = state.now_ns + kSpaceCheckNs;
      if (disk_is_nearly_full()) return "disk nearly full";
    }
    return state.targets_ended ? "target exited" : "";
  }

  std::uint64_t next_space_check_ns = 0;
};

}  // namespace dynprof
