#include "user/kernel/watch_armer.h"

#include <bpf/libbpf.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>

#include <utility>

#include "user/kernel/thread_priority.h"
#include "user/target/clock.h"

namespace dynprof {

void WatchArmer::RingDeleter::operator()(ring_buffer* ring) const { ring_buffer__free(ring); }

Result<std::unique_ptr<WatchArmer>> WatchArmer::start(int ring_fd) {
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return errno_error("cannot make an eventfd");
  std::unique_ptr<WatchArmer> armer(new WatchArmer(std::move(stop)));
  armer->ring_.reset(ring_buffer__new(ring_fd, on_request, armer.get(), nullptr));
  if (!armer->ring_) return errno_error("cannot map the ring buffer of arm requests");
  armer->thread_ = std::thread([self = armer.get()] { self->run(); });
  return armer;
}

WatchArmer::~WatchArmer() {
  const std::uint64_t one = 1;
  if (thread_.joinable() && write(stop_.get(), &one, sizeof one) == sizeof one) thread_.join();
}

void WatchArmer::run() {
  ::prctl(PR_SET_NAME, "dynprof-watch");
  // It needs some microseconds per compile, and soon. Not with a real-time priority: such a thread would take its CPU from
  // the target where another one is idle.
  set_thread_priority(kFirstNice, kShortestSliceNs, WakePolicy::kPreempts);
  while (true) {
    pollfd waits[2] = {{stop_.get(), POLLIN, 0}, {ring_buffer__epoll_fd(ring_.get()), POLLIN, 0}};
    poll(waits, 2, -1);
    if (waits[0].revents) return;
    ring_buffer__consume(ring_.get());
  }
}

int WatchArmer::on_request(void* self, void* data, std::size_t size) {
  dp_arm_request request;
  if (size < sizeof request) return 0;
  std::memcpy(&request, data, sizeof request);
  static_cast<WatchArmer*>(self)->set(static_cast<pid_t>(request.tid), request.armed != 0,
                                      request.time_ns);
  return 0;
}

void WatchArmer::add(pid_t tid, std::function<void(bool)> arm) {
  std::lock_guard lock(mutex_);
  Entry entry;
  entry.arm = std::move(arm);
  entries_.insert_or_assign(tid, std::move(entry));
}

void WatchArmer::remove(pid_t tid) {
  std::lock_guard lock(mutex_);
  entries_.erase(tid);
}

void WatchArmer::set(pid_t tid, bool armed, std::uint64_t time_ns) {
  std::lock_guard lock(mutex_);
  auto at = entries_.find(tid);
  if (at == entries_.end() || time_ns < at->second.asked_ns) return;
  Entry& entry = at->second;
  entry.asked_ns = time_ns;
  if (entry.changes.back().armed == armed) return;
  entry.arm(armed);
  entry.changes.push_back({armed, monotonic_ns()});
  if (entry.changes.size() > kChangesKept) entry.changes.pop_front();
}

std::optional<bool> WatchArmer::armed_at(pid_t tid, std::uint64_t time_ns) const {
  std::lock_guard lock(mutex_);
  auto at = entries_.find(tid);
  if (at == entries_.end()) return false;
  const std::deque<Change>& changes = at->second.changes;
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
    if (change->time_ns <= time_ns) return change->armed;
  }
  return std::nullopt;
}

}  // namespace dynprof
