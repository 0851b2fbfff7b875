#include "user/stacks/native_unwind.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "symbolizer/base/unique_fd.h"
#include "user/kernel/thread_priority.h"
#include "user/preflight/capabilities.h"
#include "user/stacks/native_worker.h"
#include "user/target/clock.h"

namespace dynprof {
namespace {

// Processes whose mappings are published without a wait, at the beginning and where many begin at once.
constexpr std::size_t kReadySlots = 256;
constexpr std::uint64_t kIdleCheckNs = 10'000'000'000;

unsigned pool_threads() { return std::clamp(std::thread::hardware_concurrency() / 2, 1U, 4U); }

// Commands from the collector to the thread. Spaces may outlive the thread: they hold this.
struct Queue {
  std::mutex mutex;
  std::condition_variable settled;
  UniqueFd wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  bool stop = false;
  bool busy = false;
  std::vector<NativeSpaceRef> looks;
  std::vector<std::uint32_t> drops;  // slots
  std::vector<std::uint32_t> free_slots;
  std::uint32_t next_slot = 1;
  std::uint32_t next_owner = 1;
  std::vector<std::string> problems;

  void notify() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = write(wake.get(), &one, sizeof one);
  }
};

class ThreadedNativeUnwind final : public NativeUnwind {
 public:
  ThreadedNativeUnwind(int tables, int spaces, const NativeLimits& limits)
      : queue_(std::make_shared<Queue>()), thread_([queue = queue_, tables, spaces, limits] {
          work(*queue, NativeMaps(tables, spaces), limits);
        }) {}

  ~ThreadedNativeUnwind() override {
    {
      const std::lock_guard lock(queue_->mutex);
      queue_->stop = true;
    }
    queue_->notify();
    thread_.join();
    // They hold the queue, and lock it when they go.
    std::vector<NativeSpaceRef> looks;
    {
      const std::lock_guard lock(queue_->mutex);
      looks.swap(queue_->looks);
    }
  }

  NativeSpaceRef space_of(pid_t pid) override {
    const std::lock_guard lock(queue_->mutex);
    auto space = std::make_unique<NativeSpace>();
    if (!queue_->free_slots.empty()) {
      space->slot = queue_->free_slots.back();
      queue_->free_slots.pop_back();
    } else if (queue_->next_slot < DP_MAX_NATIVE_SPACES) {
      space->slot = queue_->next_slot++;
    } else {
      return nullptr;
    }
    space->owner = queue_->next_owner++;
    space->pid = pid;
    return {space.release(), [queue = queue_](NativeSpace* gone) {
              {
                const std::lock_guard inner(queue->mutex);
                queue->drops.push_back(gone->slot);
              }
              queue->notify();
              delete gone;
            }};
  }

  void look(const NativeSpaceRef& space) override {
    if (!space) return;
    {
      const std::lock_guard lock(queue_->mutex);
      if (std::find(queue_->looks.begin(), queue_->looks.end(), space) != queue_->looks.end())
        return;
      queue_->looks.push_back(space);
      queue_->busy = true;
    }
    queue_->notify();
  }

  void settle(std::chrono::milliseconds limit) override {
    std::unique_lock lock(queue_->mutex);
    queue_->settled.wait_for(lock, limit, [this] { return !queue_->busy; });
  }

  std::string take_problem() override {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->problems.empty()) return {};
    std::string first = std::move(queue_->problems.front());
    queue_->problems.erase(queue_->problems.begin());
    return first;
  }

 private:
  // A look that came too soon after the one before it.
  struct Later {
    std::uint64_t not_before_ns = 0;
    NativeSpaceRef wanted;
  };

  static void work(Queue& queue, NativeMaps maps, const NativeLimits& limits) {
    ::prctl(PR_SET_NAME, "dynprof-unwind");
    set_background_priority();  // inherited by the threads that make tables
    keep_only_reading(/*maps=*/true);
    auto cache = TableCache::open(limits.cache);
    NativeWorker worker(std::move(maps), pool_threads(), cache ? cache->get() : nullptr,
                        limits.table_bytes);
    if (!cache) worker.problem(fmt::format("unwind tables are not kept: {}", cache.error().what));
    prepare_slots(queue, worker);
    std::map<std::uint32_t, Later> later;  // by slot
    for (;;) {
      wait(queue, worker, later);
      std::vector<NativeSpaceRef> looks;
      std::vector<std::uint32_t> drops;
      {
        const std::lock_guard lock(queue.mutex);
        if (queue.stop) return;
        looks.swap(queue.looks);
        drops.swap(queue.drops);
      }
      for (NativeSpaceRef& space : looks) {
        const std::uint32_t slot = space->slot;
        later[slot].wanted = std::move(space);
      }
      look_at(queue, worker, later);
      worker.take_tables();
      for (std::uint32_t slot : drops) {
        worker.drop(slot);
        later.erase(slot);
      }
      worker.forget_idle();
      report(queue, worker, drops, later);
    }
  }

  // Those that are due, until the end is asked for.
  static void look_at(Queue& queue, NativeWorker& worker, std::map<std::uint32_t, Later>& later) {
    const std::uint64_t now = monotonic_ns();
    std::vector<std::uint32_t> due;
    for (const auto& [slot, entry] : later)
      if (entry.wanted && now >= entry.not_before_ns) due.push_back(slot);
    for (std::size_t i = 0; i < due.size(); ++i) {
      {
        const std::lock_guard lock(queue.mutex);
        if (queue.stop) return;
      }
      if (i % kReadySlots == 0)
        worker.make_ready(std::span(due).subspan(i, std::min(kReadySlots, due.size() - i)));
      Later& entry = later[due[i]];
      entry.not_before_ns = worker.look(*entry.wanted) + monotonic_ns();
      entry.wanted.reset();
    }
  }

  static void prepare_slots(Queue& queue, NativeWorker& worker) {
    std::vector<std::uint32_t> slots;
    {
      const std::lock_guard lock(queue.mutex);
      for (std::size_t i = 0; i < kReadySlots; ++i) slots.push_back(queue.next_slot++);
    }
    worker.make_ready(slots);
    const std::lock_guard lock(queue.mutex);
    queue.free_slots.insert(queue.free_slots.end(), slots.begin(), slots.end());
  }

  static void wait(Queue& queue, const NativeWorker& worker,
                   const std::map<std::uint32_t, Later>& later) {
    std::uint64_t now = monotonic_ns();
    std::uint64_t due = now + kIdleCheckNs;
    for (const auto& [slot, entry] : later)
      if (entry.wanted) due = std::min(due, std::max(entry.not_before_ns, now));
    const int timeout = static_cast<int>((due - now + 999'999) / 1'000'000);
    pollfd fds[2] = {{queue.wake.get(), POLLIN, 0}, {worker.ready_fd(), POLLIN, 0}};
    poll(fds, 2, timeout);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(queue.wake.get(), &count, sizeof count);
  }

  static void report(Queue& queue, NativeWorker& worker, const std::vector<std::uint32_t>& drops,
                     const std::map<std::uint32_t, Later>& later) {
    const bool waiting = std::any_of(later.begin(), later.end(), [](const auto& entry) {
      return entry.second.wanted != nullptr;
    });
    const std::lock_guard lock(queue.mutex);
    // Only now: a slot is not given away before its map is cleared.
    queue.free_slots.insert(queue.free_slots.end(), drops.begin(), drops.end());
    for (std::string problem = worker.take_problem(); !problem.empty();
         problem = worker.take_problem())
      queue.problems.push_back(std::move(problem));
    queue.busy = waiting || !queue.looks.empty() || !worker.idle();
    if (!queue.busy) queue.settled.notify_all();
  }

  std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<NativeUnwind> NativeUnwind::start(int unwind_tables, int native_spaces,
                                                  const NativeLimits& limits) {
  return std::make_unique<ThreadedNativeUnwind>(unwind_tables, native_spaces, limits);
}

}  // namespace dynprof
