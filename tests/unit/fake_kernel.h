// The kernel side without a kernel: accepts everything and remembers it. The events and counters that come
// from it are put there by a test.
#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "user/kernel/kernel_side.h"

namespace dynprof {

class FakeKernel final : public KernelSide {
 public:
  std::map<std::uint32_t, dp_process> processes;  // by pid, as last told
  std::map<std::pair<std::uint32_t, std::uint64_t>, dp_marker_code> codes;
  std::map<std::uint32_t, dp_torch_thread> torch_threads;
  bool probes = true;
  std::vector<dp_region_count> regions;
  std::deque<std::vector<std::byte>> events;                      // not yet consumed
  std::size_t at_once = std::numeric_limits<std::size_t>::max();  // consume() hands out this many
  Counters counted = {};

  Result<void> set_process(std::uint32_t pid, const dp_process& process) override {
    processes[pid] = process;
    return {};
  }
  Result<void> update_process(std::uint32_t pid, const dp_process& process) override {
    if (processes.contains(pid)) processes[pid] = process;
    return {};
  }
  void forget_process(std::uint32_t pid) override { processes.erase(pid); }
  void add_code(std::uint32_t pid, std::uint64_t code, const dp_marker_code& marker) override {
    codes[{pid, code}] = marker;
  }
  void set_torch_thread(std::uint32_t tid, const dp_torch_thread& thread) override {
    torch_threads[tid] = thread;
  }
  std::uint32_t new_clock_slot() override { return 0; }
  std::uint32_t new_run_slot() override { return 0; }
  std::span<const dp_region_count> region_counts() const override { return regions; }
  const DirectMap& direct_map() const override { return direct_map_; }
  WatchArmer* armer() const override { return nullptr; }
  bool may_probe() const override { return probes; }
  const Uprobes* uprobes() const override { return nullptr; }
  Result<Watchpoint> watch_inline(UniqueFd, bool) override { return error("no watchpoints"); }
  Result<Uprobe> attach_probe(Probe, const UprobePlace&, std::string_view) override {
    return error("no probes");
  }
  Result<void> attach_process_events() override { return {}; }
  Result<Link> attach_sampler(UniqueFd) override { return error("no samples"); }
  void detach() override {}
  int ring_fd() const override { return -1; }
  bool consume(const Visitor& visit, const DrainBudget&) override {
    for (std::size_t i = 0; i < at_once && !events.empty(); ++i) {
      visit(events.front());
      events.pop_front();
    }
    return events.empty();
  }
  std::uint64_t ring_capacity() const override { return 0; }
  Counters counters() const override { return counted; }
  int map_fd(const char*) const override { return -1; }
  Result<void> add_ring(int) override { return {}; }

 private:
  DirectMap direct_map_;
};

}  // namespace dynprof
