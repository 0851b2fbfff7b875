// An event as it came out of a ring buffer, checked: lengths and counts agree with each other. Each is decoded
// once, here; a visitor of EventView handles every kind. The views point into the ring and live until the
// consumer returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

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

// The stack of a wait: the same layout as a sample.
struct WaitStackView {
  SampleView stack;
};

// Of bpf/gpu_events.h: user/gpu/gpu_view.h decodes the rest.
struct GpuEventView {
  dp_event_header header;
  std::span<const std::byte> bytes;
};

// A plain event whose fields have to be checked too has an is_valid() in event_view.cpp.
#define DYNPROF_ALTERNATIVE(kind, number, Event) , Event
using EventView = std::variant<SampleView, WaitStackView, dp_inline_event, ProcessEventView,
                               GpuEventView DP_PLAIN_EVENTS(DYNPROF_ALTERNATIVE)>;
#undef DYNPROF_ALTERNATIVE

// nullopt: malformed, or of a kind that is not known.
std::optional<EventView> decode_event(std::span<const std::byte> bytes);
// The kind of the event, or nullopt if the bytes are no event at all.
std::optional<dp_event_header> event_header(std::span<const std::byte> bytes);
// Also of what the GPU library's launches carry.
std::optional<SampleView> decode_sample(std::span<const std::byte> bytes);

}  // namespace dynprof
