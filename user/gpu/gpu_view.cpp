#include "user/gpu/gpu_view.h"

#include <cstring>

namespace dynprof {
namespace {

std::optional<std::span<const std::byte>> payload(std::span<const std::byte> bytes,
                                                  dp_gpu_bytes& head) {
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes = bytes.subspan(sizeof head);
  if (head.bytes > bytes.size()) return std::nullopt;
  return bytes.first(head.bytes);
}

}  // namespace

std::optional<std::span<const dynprof_gpu_record>> decode_gpu_batch(
    std::span<const std::byte> bytes) {
  dp_gpu_bytes head;
  auto text = payload(bytes, head);
  if (!text || text->size() % DYNPROF_GPU_RECORD_BYTES != 0) return std::nullopt;
  // Ring records are 8-byte aligned, and so is what follows the head.
  return std::span(reinterpret_cast<const dynprof_gpu_record*>(text->data()),
                   text->size() / DYNPROF_GPU_RECORD_BYTES);
}

std::optional<GpuName> decode_gpu_name(std::span<const std::byte> bytes) {
  dp_gpu_bytes head;
  auto text = payload(bytes, head);
  if (!text || text->size() > DYNPROF_GPU_MAX_NAME) return std::nullopt;
  return GpuName{head.id, {reinterpret_cast<const char*>(text->data()), text->size()}};
}

std::optional<dynprof_gpu_status> decode_gpu_status(std::span<const std::byte> bytes) {
  dp_gpu_status event;
  if (bytes.size() < sizeof event) return std::nullopt;
  std::memcpy(&event, bytes.data(), sizeof event);
  if (event.status.bytes < sizeof event.status) return std::nullopt;
  return event.status;
}

std::optional<dp_gpu_stub> decode_gpu_stub(std::span<const std::byte> bytes) {
  dp_gpu_stub event;
  if (bytes.size() < sizeof event) return std::nullopt;
  std::memcpy(&event, bytes.data(), sizeof event);
  return event;
}

namespace {

template <class Event>
std::optional<GpuEvent> event_of(const std::optional<Event>& event) {
  if (!event) return std::nullopt;
  return GpuEvent(*event);
}

}  // namespace

std::optional<GpuEvent> decode_gpu_event(const GpuEventView& view) {
  switch (view.header.kind) {
    case DP_EVENT_GPU_LAUNCH:
      return event_of(decode_sample(view.bytes));
    case DP_EVENT_GPU_BATCH:
      return event_of(decode_gpu_batch(view.bytes));
    case DP_EVENT_GPU_NAME:
      return event_of(decode_gpu_name(view.bytes));
    case DP_EVENT_GPU_STATUS:
      return event_of(decode_gpu_status(view.bytes));
    case DP_EVENT_GPU_STUB:
      return event_of(decode_gpu_stub(view.bytes));
    default:
      return std::nullopt;
  }
}

bool is_plausible(const dynprof_gpu_record& record) {
  if (record.kind < DYNPROF_GPU_KERNEL || record.kind > DYNPROF_GPU_DEVICE) return false;
  return record.end_ns >= record.start_ns;
}

}  // namespace dynprof
