// Stacks of launches that the kernel side sends once and then by number (bpf/launch_memo.bpf.h).
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "bpf/gpu_events.h"
#include "user/kernel/event_view.h"
#include "user/process/sample_encoder.h"

namespace dynprof {

class LaunchStacks {
 public:
  // The number of a launch's stack; nothing: it has none.
  static std::optional<std::uint64_t> number_of(const SampleView& launch) {
    if (!(launch.sample.flags & DP_SAMPLE_GPU_STACK_NUMBER) || launch.native.empty())
      return std::nullopt;
    return launch.native.back();
  }

  // At most one is kept for each place of the kernel side's memory: the newest.
  void keep(std::uint64_t number, const SamplePlace& place) {
    if (memo(number) < DP_LAUNCH_MEMOS && site(number) < DP_LAUNCH_SITES)
      kept_.insert_or_assign(number >> 32, Kept{version(number), place});
  }
  // Null: it has not come.
  const SamplePlace* find(std::uint64_t number) const {
    const auto at = kept_.find(number >> 32);
    return at != kept_.end() && at->second.version == version(number) ? &at->second.place : nullptr;
  }

 private:
  struct Kept {
    std::uint32_t version;
    SamplePlace place;
  };
  // As DP_LAUNCH_STACK_NUMBER puts them together.
  static std::uint64_t memo(std::uint64_t number) { return number >> 48; }
  static std::uint64_t site(std::uint64_t number) { return number >> 32 & 0xffff; }
  static std::uint32_t version(std::uint64_t number) { return static_cast<std::uint32_t>(number); }

  std::unordered_map<std::uint64_t, Kept> kept_;
};

}  // namespace dynprof
