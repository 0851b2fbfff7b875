// GPU events as they came out of the ring buffer, checked. The views live until the consumer returns.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "bpf/gpu_events.h"
#include "user/kernel/event_view.h"

namespace dynprof {

// Whole records; each is still to be checked (is_plausible).
std::optional<std::span<const dynprof_gpu_record>> decode_gpu_batch(
    std::span<const std::byte> bytes);
struct GpuName {
  std::uint32_t id = 0;
  std::string_view text;
};
std::optional<GpuName> decode_gpu_name(std::span<const std::byte> bytes);
std::optional<dp_gpu_stub> decode_gpu_stub(std::span<const std::byte> bytes);
std::optional<dynprof_gpu_status> decode_gpu_status(std::span<const std::byte> bytes);

using GpuBatch = std::span<const dynprof_gpu_record>;
// A SampleView is a launch.
using GpuEvent = std::variant<SampleView, dp_gpu_stub, GpuBatch, GpuName, dynprof_gpu_status>;
// nullopt: malformed.
std::optional<GpuEvent> decode_gpu_event(const GpuEventView& view);

// Of a known kind, and not ending before it began.
bool is_plausible(const dynprof_gpu_record& record);

}  // namespace dynprof
