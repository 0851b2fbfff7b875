#include "cupti/activity.h"

#include "cupti/calls.h"
#include "cupti/state.h"
#include "cupti/subscription.h"

namespace dynprof_cupti {
namespace {

constexpr std::uint32_t kMaxBuffers = 1024;
constexpr std::uint32_t kKeptBuffers = 16;  // more are given back to the kernel when they return
constexpr std::uint64_t kSecond = 1'000'000'000;

enum BufferState : std::uint32_t { kNone, kFree, kLent, kChanging };

// Callbacks are global in CUPTI: after another client registered its own, ours may be handed its
// buffers. Only these are ours.
struct Buffer {
  std::atomic<std::uint32_t> state;
  std::uint8_t* address;
};
Buffer buffers[kMaxBuffers];
std::atomic<std::uint32_t> lent{0};
std::atomic<std::uint32_t> mapped{0};
std::atomic<bool> keep_all{false};

bool take(Buffer& buffer, std::uint32_t expected, std::uint32_t wanted) {
  return buffer.state.compare_exchange_strong(expected, wanted, std::memory_order_acq_rel);
}

std::uint8_t* lend() {
  for (Buffer& buffer : buffers) {
    if (take(buffer, kFree, kLent)) return buffer.address;
    if (!take(buffer, kNone, kChanging)) continue;
    buffer.address = static_cast<std::uint8_t*>(map_pages(kBufferBytes));
    buffer.state.store(buffer.address ? kLent : kNone, std::memory_order_release);
    if (buffer.address) mapped.fetch_add(1, std::memory_order_relaxed);
    return buffer.address;
  }
  return nullptr;
}

Buffer* find_lent(const std::uint8_t* address) {
  for (Buffer& buffer : buffers)
    if (buffer.state.load(std::memory_order_acquire) == kLent && buffer.address == address)
      return &buffer;
  return nullptr;
}

void take_back(Buffer& buffer) {
  lent.fetch_sub(1, std::memory_order_relaxed);
  if (mapped.load(std::memory_order_relaxed) > kKeptBuffers && !keep_all.load()) {
    buffer.state.store(kChanging, std::memory_order_relaxed);
    unmap_pages(buffer.address, kBufferBytes);
    mapped.fetch_sub(1, std::memory_order_relaxed);
    buffer.state.store(kNone, std::memory_order_release);
  } else {
    buffer.state.store(kFree, std::memory_order_release);
  }
}

// ---- one activity record -> ours --------------------------------------------------------------

// CUPTI's time as CLOCK_MONOTONIC; 0 is "not known".
std::uint64_t our_time(std::uint64_t theirs) {
  return theirs == 0 ? 0 : theirs - static_cast<std::uint64_t>(clock_offset_ns());
}

template <typename Activity>
void convert_common(const Activity& from, dynprof_gpu_record& to) {
  to.correlation = from.correlation;
  to.start_ns = our_time(from.start);
  to.end_ns = our_time(from.end);
  to.context = from.context;
  to.stream = from.stream;
}

template <typename Activity>
void convert_placed(const Activity& from, dynprof_gpu_record& to) {
  convert_common(from, to);
  to.device = from.device;
  to.graph = from.graph;
  to.graph_node = from.graph ? from.graph_node : 0;
}

void convert_kernel(const CuptiKernel& from, dynprof_gpu_record& to) {
  to.kind = DYNPROF_GPU_KERNEL;
  convert_placed(from, to);
  to.name = state.names.intern(from.name);
  if (to.name == 0) state.counters.unnamed.fetch_add(1, std::memory_order_relaxed);
  for (int i = 0; i < 3; ++i) {
    to.kernel.grid[i] = from.grid[i];
    to.kernel.block[i] = from.block[i];
    to.kernel.cluster[i] = from.cluster[i];
  }
  to.kernel.registers = from.registers_per_thread;
  to.kernel.static_shared = static_cast<std::uint32_t>(from.static_shared);
  to.kernel.dynamic_shared = static_cast<std::uint32_t>(from.dynamic_shared);
  to.kernel.local_per_thread = from.local_per_thread;
  to.kernel.channel = from.channel;
  to.kernel.channel_type = from.channel_type;
  to.kernel.launch_type = from.launch_type;
  to.kernel.queued_ns = our_time(from.queued);
}

template <typename Activity>
void convert_copy(const Activity& from, dynprof_gpu_record& to) {
  to.kind = DYNPROF_GPU_MEMCPY;
  convert_placed(from, to);
  to.memory.bytes = from.bytes;
  to.memory.copy_kind = from.copy_kind;
  to.memory.source_kind = from.source_kind;
  to.memory.destination_kind = from.destination_kind;
  to.memory.flags = from.flags;
  to.memory.channel = from.channel;
  to.memory.channel_type = from.channel_type;
}

void convert_peer_copy(const CuptiMemcpyPeer& from, dynprof_gpu_record& to) {
  convert_copy(from, to);
  to.memory.peer = 1;
  to.memory.source_device = from.source_device;
  to.memory.source_context = from.source_context;
  to.memory.destination_device = from.destination_device;
  to.memory.destination_context = from.destination_context;
}

void convert_memset(const CuptiMemset& from, dynprof_gpu_record& to) {
  to.kind = DYNPROF_GPU_MEMSET;
  convert_placed(from, to);
  to.memory.bytes = from.bytes;
  to.memory.destination_kind = from.memory_kind;
  to.memory.flags = from.flags;
  to.memory.value = from.value;
  to.memory.channel = from.channel;
  to.memory.channel_type = from.channel_type;
}

void convert_sync(const CuptiSynchronization& from, dynprof_gpu_record& to) {
  to.kind = DYNPROF_GPU_SYNC;
  convert_common(from, to);
  to.device = ~0u;
  to.sync.type = from.type;
  to.sync.event = from.event;
}

bool convert(const void* from, dynprof_gpu_record& to) {
  switch (*static_cast<const std::uint32_t*>(from)) {
    case kCuptiKindKernel:
    case kCuptiKindConcurrentKernel:
      convert_kernel(*static_cast<const CuptiKernel*>(from), to);
      return true;
    case kCuptiKindMemcpy:
      convert_copy(*static_cast<const CuptiMemcpy*>(from), to);
      return true;
    case kCuptiKindMemcpyPeer:
      convert_peer_copy(*static_cast<const CuptiMemcpyPeer*>(from), to);
      return true;
    case kCuptiKindMemset:
      convert_memset(*static_cast<const CuptiMemset*>(from), to);
      return true;
    case kCuptiKindSynchronization:
      convert_sync(*static_cast<const CuptiSynchronization*>(from), to);
      return true;
    default:
      return false;
  }
}

// Within the session, give or take what clocks and long kernels do.
bool plausible(const dynprof_gpu_record& record, std::uint64_t slack_ns) {
  return record.start_ns + slack_ns >= state.session_start_ns && record.end_ns >= record.start_ns &&
         record.end_ns <= monotonic_ns() + kSecond;
}

void take_record(const void* activity, bool foreign) {
  dynprof_gpu_record record{};
  if (!convert(activity, record)) {
    state.counters.unknown_records.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (was_left_out(record.correlation)) {
    state.counters.dropped_rate_records.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  // A buffer that another client left behind begins with its records, then holds ours.
  if (foreign && !plausible(record, 0)) return;
  // Another client that registered its own clock makes all later times wrong: tell, do not guess.
  if (!plausible(record, 60 * kSecond))
    state.counters.implausible_times.fetch_add(1, std::memory_order_relaxed);
  deliver(record);
}

void read_buffer(std::uint8_t* buffer, std::size_t valid, bool foreign) {
  void* activity = nullptr;
  std::size_t left = valid / 24 + 1;  // no activity record is smaller
  while (left-- > 0 && next_record(buffer, valid, &activity) == kCuptiSuccess)
    take_record(activity, foreign);
}

void count_dropped(void* context, std::uint32_t stream) {
  std::size_t dropped = 0;
  if (dropped_records(context, stream, &dropped) == kCuptiSuccess)
    state.counters.dropped_cupti.fetch_add(dropped, std::memory_order_relaxed);
}

}  // namespace

void keep_buffers(bool keep) { keep_all.store(keep); }
std::uint32_t lent_buffers() { return lent.load(std::memory_order_relaxed); }

void on_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *buffer = lend();
  *size = *buffer ? kBufferBytes : 0;
  *max_records = 0;  // as many as fit
  if (*buffer) lent.fetch_add(1, std::memory_order_relaxed);
}

void on_buffer_completed(void* context, std::uint32_t stream, std::uint8_t* address,
                         std::size_t size, std::size_t valid) {
  if (state.forked.load(std::memory_order_relaxed)) return;
  Buffer* buffer = find_lent(address);
  if (buffer == nullptr) state.counters.foreign_buffers.fetch_add(1, std::memory_order_relaxed);
  if (state.collecting.load(std::memory_order_acquire)) {
    read_buffer(address, valid < size ? valid : size, buffer == nullptr);
    count_dropped(context, stream);
  }
  if (buffer != nullptr) take_back(*buffer);
}

void on_own_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records,
                             void*) {
  on_buffer_requested(buffer, size, max_records);
}

void on_own_buffer_completed(std::uint8_t* buffer, std::size_t size, std::size_t valid, void*) {
  on_buffer_completed(nullptr, 0, buffer, size, valid);
}

}  // namespace dynprof_cupti
