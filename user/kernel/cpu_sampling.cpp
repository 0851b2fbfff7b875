#include "user/kernel/cpu_sampling.h"

#include <fmt/format.h>

#include <algorithm>

namespace dynprof {
namespace {

constexpr std::uint64_t kLookNs = 1'000'000'000;

}  // namespace

CpuSampling CpuSampling::of(KernelSide& kernel, SamplingEvent event, std::uint32_t frequency_hz) {
  return CpuSampling(
      {.online = online_cpus,
       .open = [=](int cpu) { return open_sampling_event(event, frequency_hz, cpu); },
       .attach = [&kernel](UniqueFd fd) { return kernel.attach_sampler(std::move(fd)); }});
}

Result<void> CpuSampling::begin(std::vector<CpuEvent> events) {
  for (CpuEvent& event : events) {
    ASSIGN_OR_RETURN(links_[event.cpu], hooks_.attach(std::move(event.fd)));
  }
  return {};
}

std::string CpuSampling::follow(std::uint64_t now_ns) {
  if (now_ns < next_look_ns_) return {};
  next_look_ns_ = now_ns + kLookNs;
  const std::vector<int> online = hooks_.online();
  const auto is_off = [&](int cpu) {
    return std::find(online.begin(), online.end(), cpu) == online.end();
  };
  std::erase_if(links_, [&](const auto& entry) { return is_off(entry.first); });
  std::erase_if(refused_, is_off);
  for (int cpu : online) {
    if (links_.contains(cpu) || refused_.contains(cpu)) continue;
    auto event = hooks_.open(cpu);
    auto link = event ? hooks_.attach(std::move(*event)) : Result<Link>(event.error());
    if (link) {
      links_[cpu] = std::move(*link);
    } else if (link.error().errno_value != ENODEV) {  // that one has gone again
      refused_.insert(cpu);
      return fmt::format("CPU {} came online and is not sampled: {}", cpu, link.error().what);
    }
  }
  return {};
}

}  // namespace dynprof
