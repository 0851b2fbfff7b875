#include "user/kernel/event_rings.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/epoll.h>

#include "user/target/clock.h"

namespace dynprof {
namespace {

// Any negative number: libbpf advances past the event that was handed out, stops, and returns it.
constexpr int kStop = -ECANCELED;
constexpr std::uint64_t kRecordHeader = 8;  // BPF_RINGBUF_HDR_SZ

}  // namespace

void EventRings::Deleter::operator()(ring_buffer* ring) const { ring_buffer__free(ring); }

int EventRings::on_event(void* context, void* data, std::size_t size) {
  auto& drain = *static_cast<Drain*>(context);
  (*drain.visit)({static_cast<const std::byte*>(data), size});
  const std::uint64_t taken = size + kRecordHeader;
  if (taken >= drain.bytes_left) return kStop;
  drain.bytes_left -= taken;
  return monotonic_ns() >= drain.until_ns ? kStop : 0;
}

Result<void> EventRings::add(int map_fd) {
  if (!poll_) poll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!poll_) return errno_error("cannot wait for the ring buffer");
  bpf_map_info info = {};
  std::uint32_t size = sizeof info;
  if (bpf_obj_get_info_by_fd(map_fd, &info, &size))
    return errno_error("cannot look at the ring buffer");
  Ring ring;
  ring.drain = std::make_unique<Drain>();
  ring.buffer.reset(ring_buffer__new(map_fd, on_event, ring.drain.get(), nullptr));
  if (!ring.buffer) return errno_error("cannot map the ring buffer");
  epoll_event readable = {};
  readable.events = EPOLLIN;
  if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, ring_buffer__epoll_fd(ring.buffer.get()), &readable))
    return errno_error("cannot wait for the ring buffer");
  capacity_ += info.max_entries;
  rings_.push_back(std::move(ring));
  return {};
}

bool EventRings::drain(const Visitor& visit, const DrainBudget& budget) {
  bool empty = true;
  for (Ring& ring : rings_) {
    *ring.drain = {&visit, monotonic_ns() + budget.time_ns, budget.bytes};
    empty &= ring_buffer__consume(ring.buffer.get()) != kStop;
    ring.drain->visit = nullptr;
  }
  return empty;
}

}  // namespace dynprof
