// Arms the watchpoints of threads in which a compile begins. Between that moment and the first user
// function that Dynamo traces lie one or two milliseconds, and the thread that reads events may just be
// busy: so a thread of our own does this alone, woken by requests from the kernel side.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "bpf/events.h"
#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

struct ring_buffer;

namespace dynprof {

class WatchArmer {
 public:
  // `ring_fd`: the map `arm_requests`. Threads that are not added are left alone.
  static Result<std::unique_ptr<WatchArmer>> start(int ring_fd);
  ~WatchArmer();
  WatchArmer(const WatchArmer&) = delete;
  WatchArmer& operator=(const WatchArmer&) = delete;

  // `arm(true)` arms the thread's watchpoints, `arm(false)` disarms them. Not armed at first.
  void add(pid_t tid, std::function<void(bool)> arm);
  void remove(pid_t tid);
  // At a moment of CLOCK_MONOTONIC at which the thread began to compile, or was done with tracing. A request
  // older than the last one is ignored.
  void set(pid_t tid, bool armed, std::uint64_t time_ns);
  // Were they armed at that moment of CLOCK_MONOTONIC? An event is read later than it happens, when they
  // may be disarmed again. False for threads that are not added; nothing where it is too long ago.
  std::optional<bool> armed_at(pid_t tid, std::uint64_t time_ns) const;

 private:
  explicit WatchArmer(UniqueFd stop) : stop_(std::move(stop)) {}
  void run();
  static int on_request(void* self, void* data, std::size_t size);

  struct Change {
    bool armed = false;
    std::uint64_t time_ns = 0;  // when it was done
  };
  static constexpr std::size_t kChangesKept = 256;
  struct Entry {
    std::function<void(bool)> arm;
    std::deque<Change> changes = {Change()};  // the newest last, never empty
    std::uint64_t asked_ns = 0;
  };
  struct RingDeleter {
    void operator()(ring_buffer* ring) const;
  };
  mutable std::mutex mutex_;
  std::map<pid_t, Entry> entries_;
  std::unique_ptr<ring_buffer, RingDeleter> ring_;
  UniqueFd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace dynprof
