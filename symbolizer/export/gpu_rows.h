// Where GPU work goes in a chrome trace: one process per device, one thread per stream, by Kineto's
// numbers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "symbolizer/export/trace_file.h"

namespace dynprof {

// Devices of a second process get rows of their own.
inline constexpr std::int32_t kDevicesPerProcess = 64;
inline constexpr std::int64_t kSyncRowBase = 1'000'000;

// Which rows there are in this file, and what Kineto calls them.
class GpuRows {
 public:
  GpuRows(const TraceShared& shared, const TraceFile& file) {
    if (file.shows(shared.attribution.main_pid())) add_process(shared.attribution.main_pid());
    for (const GpuItem& item : shared.gpu.items()) {
      const dynprof_gpu_record& record = item.row->record;
      if (!file.shows(item.row->pid)) continue;
      add_process(item.row->pid);
      if (record.device < kDevicesPerProcess)
        device_of_context_.try_emplace({item.row->pid, record.context}, record.device);
    }
    for (const GpuItem& item : shared.gpu.items())
      if (auto row = find(*item.row)) rows_.insert({row->pid, row->tid});
  }

  struct Place {
    std::int32_t pid;
    std::int64_t tid;
    std::uint32_t device;
  };
  // Nothing where the device is not known: the wait of a call that waits for all.
  std::optional<Place> find(const GpuRecord& row) const {
    const dynprof_gpu_record& record = row.record;
    if (!processes_.contains(row.pid)) return std::nullopt;  // in another file
    std::uint32_t device = record.device;
    std::int64_t tid = record.stream;
    if (record.kind == DYNPROF_GPU_SYNC) {
      auto known = device_of_context_.find({row.pid, record.context});
      if (known == device_of_context_.end() || record.stream == ~0u) return std::nullopt;
      device = known->second;
      tid += kSyncRowBase;
    }
    if (device >= kDevicesPerProcess) return std::nullopt;
    return Place{static_cast<std::int32_t>(device) + process_offset(row.pid), tid, device};
  }
  // Correlation ids are a process's own; arrows of several must not mix.
  std::uint64_t flow_id(std::int32_t pid, std::uint32_t correlation) const {
    return static_cast<std::uint64_t>(number(pid)) << 32 | correlation;
  }
  const std::set<std::pair<std::int32_t, std::int64_t>>& rows() const { return rows_; }
  std::int32_t process_of(std::int32_t gpu_pid) const {
    for (auto [pid, at] : processes_)
      if (at == gpu_pid / kDevicesPerProcess) return pid;
    return 0;
  }

 private:
  void add_process(std::int32_t pid) {
    processes_.try_emplace(pid, static_cast<std::int32_t>(processes_.size()));
  }
  std::int32_t number(std::int32_t pid) const {
    auto at = processes_.find(pid);
    return at == processes_.end() ? 0 : at->second;
  }
  std::int32_t process_offset(std::int32_t pid) const { return kDevicesPerProcess * number(pid); }

  std::map<std::int32_t, std::int32_t> processes_;
  std::map<std::pair<std::int32_t, std::uint32_t>, std::uint32_t> device_of_context_;
  std::set<std::pair<std::int32_t, std::int64_t>> rows_;
};

}  // namespace dynprof
