// The perf events that sample, one per CPU, as CPUs come and go: an event ends with its CPU, and one that
// comes online later has none yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "user/kernel/kernel_side.h"
#include "user/kernel/perf_event.h"

namespace dynprof {

class CpuSampling {
 public:
  struct Hooks {
    std::function<std::vector<int>()> online;
    std::function<Result<UniqueFd>(int cpu)> open;
    std::function<Result<Link>(UniqueFd event)> attach;
  };
  CpuSampling() = default;
  explicit CpuSampling(Hooks hooks) : hooks_(std::move(hooks)) {}
  static CpuSampling of(KernelSide& kernel, SamplingEvent event, std::uint32_t frequency_hz);

  // Starts with the events that are open already.
  Result<void> begin(std::vector<CpuEvent> events);
  // About once a second: checks which CPUs are online. Returns a failure, once per CPU, or "".
  std::string follow(std::uint64_t now_ns);
  void detach() { links_.clear(); }
  std::size_t cpus() const { return links_.size(); }

 private:
  Hooks hooks_;
  std::map<int, Link> links_;
  std::set<int> refused_;
  std::uint64_t next_look_ns_ = 0;
};

}  // namespace dynprof
