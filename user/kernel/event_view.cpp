#include "user/kernel/event_view.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "bpf/gpu_events.h"

namespace dynprof {

std::optional<dp_event_header> event_header(std::span<const std::byte> bytes) {
  dp_event_header header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  // The ring buffer rounds sizes up to 8 bytes and may show that much.
  if (header.size < sizeof header || header.size > bytes.size()) return std::nullopt;
  return header;
}

std::optional<SampleView> decode_sample(std::span<const std::byte> bytes) {
  SampleView view;
  if (bytes.size() < sizeof view.sample) return std::nullopt;
  std::memcpy(&view.sample, bytes.data(), sizeof view.sample);
  const std::size_t frames = view.sample.frame_count;
  const std::size_t markers = view.sample.marker_count;
  if (frames > DP_MAX_PYTHON_FRAMES || markers > DP_MAX_MARKERS) return std::nullopt;
  std::size_t size = sizeof view.sample + frames * sizeof(dp_frame) + markers * sizeof(dp_marker);
  if (view.sample.flags & DP_SAMPLE_TORCH) {
    dp_torch_state torch;
    if (size + sizeof torch > bytes.size()) return std::nullopt;
    std::memcpy(&torch, bytes.data() + size, sizeof torch);
    if (torch.phase_count > DP_MAX_PHASES) return std::nullopt;
    view.torch = torch;
    size += sizeof torch;
    view.phases = {reinterpret_cast<const dp_phase_name*>(bytes.data() + size), torch.phase_count};
    size += torch.phase_count * sizeof(dp_phase_name);
  }
  const std::size_t native = view.sample.native_count;
  const std::size_t kernel = view.sample.kernel_count;
  if (native > DP_MAX_NATIVE_FRAMES || kernel > DP_MAX_KERNEL_FRAMES) return std::nullopt;
  const std::size_t addresses = size;
  size += (native + kernel) * sizeof(std::uint64_t);
  if (view.sample.header.size != size || size > bytes.size()) return std::nullopt;
  // Ring records are 8-byte aligned and so are all parts.
  const std::byte* at = bytes.data() + sizeof view.sample;
  view.frames = {reinterpret_cast<const dp_frame*>(at), frames};
  view.markers = {reinterpret_cast<const dp_marker*>(at + frames * sizeof(dp_frame)), markers};
  view.native = {reinterpret_cast<const std::uint64_t*>(bytes.data() + addresses), native};
  view.kernel = {view.native.data() + native, kernel};
  return view;
}

namespace {

template <class Event>
bool is_valid(const Event&) {
  return true;
}

bool is_valid(const dp_phase_event& event) { return event.name_size <= DP_PHASE_NAME_BYTES; }

bool is_valid(const dp_probe_event& event) { return event.name_size <= DP_PROBE_NAME_BYTES; }

bool is_valid(const dp_annotation_event& event) {
  return event.name_size <= DP_ANNOTATION_NAME_BYTES &&
         ((event.kind >= DP_ANNOTATION_RECORD_FUNCTION && event.kind <= DP_ANNOTATION_NVTX) ||
          event.kind == (DP_ANNOTATION_NVTX | DP_ANNOTATION_STARTED));
}

bool is_valid(const dp_wait_event& event) {
  return event.begin_ns <= event.header.time_ns && event.count != 0;
}

// An event that is one struct.
template <class Event>
std::optional<EventView> decode_plain_event(std::span<const std::byte> bytes) {
  Event event;
  if (bytes.size() < sizeof event) return std::nullopt;
  std::memcpy(&event, bytes.data(), sizeof event);
  if (event.header.size != sizeof event || !is_valid(event)) return std::nullopt;
  return event;
}

std::optional<dp_inline_event> decode_inline_event(std::span<const std::byte> bytes) {
  dp_inline_event event = {};
  constexpr std::size_t kWithoutCallers = offsetof(dp_inline_event, callers);
  if (bytes.size() < kWithoutCallers) return std::nullopt;
  std::memcpy(&event, bytes.data(), std::min(bytes.size(), sizeof event));
  const std::size_t size = event.begin ? sizeof event : kWithoutCallers;
  if (event.header.size != size || size > bytes.size() ||
      event.caller_count > DP_MAX_INLINE_CALLERS)
    return std::nullopt;
  return event;
}

std::optional<ProcessEventView> decode_process_event(std::span<const std::byte> bytes) {
  ProcessEventView view;
  dp_process_event& event = view.event;
  if (bytes.size() < sizeof event) return std::nullopt;
  std::memcpy(&event, bytes.data(), sizeof event);
  event.comm[sizeof event.comm - 1] = '\0';
  if (event.header.kind != DP_EVENT_EXEC) {
    if (event.header.size != sizeof event) return std::nullopt;
    return view;
  }
  if (event.args_size > DP_COMMAND_LINE_BYTES ||
      event.header.size != sizeof(dp_exec_event) + event.args_size ||
      event.header.size > bytes.size())
    return std::nullopt;
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const char* exe = text + sizeof event;
  view.exe = {exe, strnlen(exe, DP_EXE_BYTES)};
  view.args = {text + sizeof(dp_exec_event), event.args_size};
  return view;
}

template <class Event>
std::optional<EventView> view_of(const std::optional<Event>& event) {
  if (!event) return std::nullopt;
  return EventView(*event);
}

}  // namespace

std::optional<EventView> decode_event(std::span<const std::byte> bytes) {
  const auto header = event_header(bytes);
  if (!header) return std::nullopt;
  switch (header->kind) {
    case DP_EVENT_SAMPLE:
      return view_of(decode_sample(bytes));
    case DP_EVENT_WAIT_STACK:
      if (const auto stack = decode_sample(bytes)) return WaitStackView{*stack};
      return std::nullopt;
    case DP_EVENT_INLINE:
      return view_of(decode_inline_event(bytes));
#define DYNPROF_DECODE(kind, number, Event) \
  case kind:                                \
    return decode_plain_event<Event>(bytes);
      DP_PLAIN_EVENTS(DYNPROF_DECODE)
#undef DYNPROF_DECODE
    case DP_EVENT_FORK:
    case DP_EVENT_EXEC:
    case DP_EVENT_EXIT:
    case DP_EVENT_REAPED:
      return view_of(decode_process_event(bytes));
    case DP_EVENT_GPU_LAUNCH:
    case DP_EVENT_GPU_BATCH:
    case DP_EVENT_GPU_NAME:
    case DP_EVENT_GPU_STATUS:
    case DP_EVENT_GPU_STUB:
      return GpuEventView{*header, bytes};
    default:
      return std::nullopt;
  }
}

}  // namespace dynprof
