// An event as it came out of the ring buffer, checked: lengths and counts agree with each other.
// The views point into the ring and live until the consumer returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "bpf/events.h"

namespace dynprof {

struct SampleView {
  dp_sample sample;                    // a copy: the fixed part
  std::span<const dp_frame> frames;    // leaf first
  std::span<const dp_marker> markers;  // leaf first
  std::optional<dp_torch_state> torch;
  std::span<const dp_phase_name> phases;  // outermost first
  std::span<const std::uint64_t> native;  // leaf first, | DP_NATIVE_EXACT
  std::span<const std::uint64_t> kernel;  // leaf first
};

struct ProcessEventView {
  dp_process_event event;
  std::string_view exe;   // EXEC
  std::string_view args;  // EXEC: each with its 0, perhaps cut
};

// The kind of the event, or nullopt if the bytes are no event at all.
std::optional<dp_event_header> event_header(std::span<const std::byte> bytes);
std::optional<SampleView> decode_sample(std::span<const std::byte> bytes);
std::optional<dp_phase_event> decode_phase_event(std::span<const std::byte> bytes);
std::optional<dp_inline_event> decode_inline_event(std::span<const std::byte> bytes);
std::optional<dp_probe_event> decode_probe_event(std::span<const std::byte> bytes);
std::optional<dp_wait_event> decode_wait_event(std::span<const std::byte> bytes);
std::optional<ProcessEventView> decode_process_event(std::span<const std::byte> bytes);

}  // namespace dynprof
