#include "cupti/subscription.h"

#include <atomic>

#include "cupti/activity.h"
#include "cupti/cupti.h"
#include "cupti/libc.h"

namespace dynprof_cupti {
namespace {

// CUDA 13.3: several subscribers.
constexpr std::uint32_t kSharedCupti = 130300;
// A clock that is read twice differs from ours by less than this if it is ours.
constexpr std::int64_t kSameClockNs = 1'000'000;
constexpr int kClockReadings = 5;

CuptiSubscriber subscriber = nullptr;
bool shared = false;
// Of CUPTI without subscribers of their own: it stays once it is registered.
bool own_clock = false;
std::atomic<std::int64_t> clock_offset{0};
char holder_name[256];

bool may_share() {
  std::uint32_t version = 0;
  return cupti_shared.cuptiSubscribe_v2 != nullptr &&
         cupti.cuptiGetVersion(&version) == kCuptiSuccess && version >= kSharedCupti;
}

CuptiResult subscribe_as_one_of_several(CuptiCallback callback) {
  CuptiSubscriberParams wanted{};
  wanted.bytes = sizeof wanted;
  wanted.name = "dynprof-bpf";
  wanted.holder = holder_name;
  wanted.holder_bytes = sizeof holder_name - 1;
  wanted.allow_several = 1;
  return cupti_shared.cuptiSubscribe_v2(&subscriber, callback, nullptr, &wanted);
}

std::int64_t measured_offset() {
  std::uint64_t narrowest = ~0ull;
  std::int64_t offset = 0;
  for (int i = 0; i < kClockReadings; ++i) {
    std::uint64_t theirs = 0;
    const std::uint64_t before = monotonic_ns();
    if (cupti_shared.cuptiGetTimestamp_v2(subscriber, &theirs) != kCuptiSuccess) return 0;
    const std::uint64_t took = monotonic_ns() - before;
    if (took >= narrowest) continue;
    narrowest = took;
    offset = static_cast<std::int64_t>(theirs - before - took / 2);
  }
  const bool same = offset > -kSameClockNs && offset < kSameClockNs;
  return same ? 0 : offset;
}

}  // namespace

CuptiResult subscribe(CuptiCallback callback) {
  holder_name[0] = '\0';
  clock_offset.store(0);
  shared = may_share() && subscribe_as_one_of_several(callback) == kCuptiSuccess;
  if (shared) holder_name[0] = '\0';  // of the first one, which does not hinder us
  // The driver may be older than CUPTI: then there is one subscriber after all.
  return shared ? static_cast<CuptiResult>(kCuptiSuccess)
                : cupti.cuptiSubscribe(&subscriber, callback, nullptr);
}

void unsubscribe() {
  cupti.cuptiUnsubscribe(subscriber);
  subscriber = nullptr;
}

const char* holder() { return holder_name; }

CuptiResult enable_call(std::uint32_t enable, std::uint32_t domain, std::uint32_t cbid) {
  return cupti.cuptiEnableCallback(enable, subscriber, domain, cbid);
}

CuptiResult prepare_activity() {
  if (!shared) {
    // A clock once registered stays; each further registration spoils records (PyTorch issue 192021).
    if (!own_clock) {
      const CuptiResult result = cupti.cuptiActivityRegisterTimestampCallback(monotonic_ns);
      if (result != kCuptiSuccess) return result;
      own_clock = true;
    }
    return cupti.cuptiActivityRegisterCallbacks(on_buffer_requested, on_buffer_completed);
  }
  // CUPTI may refuse a clock of our own, or not use it, while several may subscribe: what it uses is compared with ours.
  CuptiClock clock = monotonic_ns;
  std::size_t bytes = sizeof clock;
  cupti_shared.cuptiActivitySetAttribute_v2(subscriber, kCuptiClockAttribute, &bytes, &clock);
  measure_clock();
  return cupti_shared.cuptiActivityRegisterCallbacks_v2(subscriber, on_own_buffer_requested,
                                                        on_own_buffer_completed);
}

CuptiResult enable_kind(std::uint32_t kind) {
  return shared ? cupti_shared.cuptiActivityEnable_v2(subscriber, kind, nullptr)
                : cupti.cuptiActivityEnable(kind);
}

void disable_kind(std::uint32_t kind) {
  if (shared)
    cupti_shared.cuptiActivityDisable_v2(subscriber, kind, nullptr);
  else
    cupti.cuptiActivityDisable(kind);
}

void flush(bool last) {
  // It flushes the buffers of all subscribers alike.
  cupti.cuptiActivityFlushAll(last && !shared ? kCuptiFlushForced : 0);
}

CuptiResult next_record(std::uint8_t* buffer, std::size_t valid, void** record) {
  return shared ? cupti_shared.cuptiActivityGetNextRecord_v2(subscriber, buffer, valid, record)
                : cupti.cuptiActivityGetNextRecord(buffer, valid, record);
}

CuptiResult dropped_records(void* context, std::uint32_t stream, std::size_t* dropped) {
  return shared ? cupti_shared.cuptiActivityGetNumDroppedRecords_v2(subscriber, context, stream,
                                                                    dropped)
                : cupti.cuptiActivityGetNumDroppedRecords(context, stream, dropped);
}

std::int64_t clock_offset_ns() { return clock_offset.load(std::memory_order_relaxed); }

void measure_clock() {
  if (shared) clock_offset.store(measured_offset(), std::memory_order_relaxed);
}

}  // namespace dynprof_cupti
