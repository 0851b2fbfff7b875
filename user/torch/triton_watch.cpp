#include "user/torch/triton_watch.h"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "user/kernel/thread_priority.h"
#include "user/preflight/capabilities.h"
#include "user/target/bounded_memory.h"
#include "user/target/clock.h"
#include "user/target/torch_threads.h"

namespace dynprof {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kPeriodNs = 20'000'000;
// A thread that never stands still for so long is passed over.
constexpr std::chrono::milliseconds kLook = 5ms;
constexpr std::size_t kMaxThreads = 1024;
constexpr std::size_t kMaxKept = 4096;
// Types and names of code objects are looked up once and hold for a while.
constexpr std::uint64_t kViewNs = 10'000'000'000;
constexpr std::size_t kMaxReads = 1'000'000;
constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
constexpr unsigned kKeptReadings = 2;

struct Work {
  std::string_view file, name;
};
constexpr std::string_view kHeuristics = "/torch/_inductor/runtime/triton_heuristics.py";
constexpr std::array kWork = {
    Work{"/triton/compiler/compiler.py", "compile"},
    Work{"/triton/runtime/autotuner.py", "_bench"},
    Work{kHeuristics, "precompile"},
    Work{kHeuristics, "autotune_to_one_config"},
    Work{kHeuristics, "benchmark_all_configs"},
    Work{kHeuristics, "coordinate_descent_tuning"},
};

struct View {
  explicit View(const PythonRuntime& runtime)
      : process(runtime.pid),
        pages(process),
        memory(pages, kMaxReads, kMaxBytes),
        objects(memory, runtime.layout),
        view((objects.set_str_type(runtime.str_type), process), objects, runtime),
        until_ns(monotonic_ns() + kViewNs) {
    pages.keep_unused(kKeptReadings);
    view.stacks.keep_unused(kKeptReadings);
  }
  bool usable() const { return !memory.exhausted() && monotonic_ns() < until_ns; }

  ProcessMemory process;
  SnapshotMemory pages;
  BoundedMemory memory;  // however objects point at each other, reading them ends
  RemoteObjects objects;
  TargetView view;
  std::uint64_t until_ns;
};

}  // namespace

bool is_triton_work(std::string_view file, std::string_view name) {
  return std::any_of(kWork.begin(), kWork.end(), [&](const Work& work) {
    return work.name == name && file.ends_with(work.file);
  });
}

std::uint32_t TritonCompilations::number(pid_t tid, std::uint64_t object) {
  if (last_.size() >= kMaxThreads) last_.clear();
  Last& last = last_[tid];
  if (object == 0) {
    last = {};
    return 0;
  }
  if (last.object != object) last = {object, ++count_};
  return last.number;
}

TritonWatch::TritonWatch(const PythonRuntime& runtime)
    : runtime_(runtime), thread_([this] { run(); }) {}

TritonWatch::~TritonWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void TritonWatch::seen(pid_t tid, std::uint64_t now_ns) {
  {
    std::lock_guard lock(mutex_);
    if (asked_ns_.size() >= kMaxThreads) asked_ns_.clear();
    std::uint64_t& asked_ns = asked_ns_[tid];
    if (now_ns < asked_ns + kPeriodNs || wanted_.size() >= kMaxThreads) return;
    asked_ns = now_ns;
    wanted_.push_back(tid);
  }
  changed_.notify_one();
}

std::vector<TritonReading> TritonWatch::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(readings_, {});
}

void TritonWatch::run() {
  ::prctl(PR_SET_NAME, "dynprof-triton");
  keep_only_reading();
  set_background_priority();
  std::unique_ptr<View> view;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !wanted_.empty(); });
    if (stop_) return;
    const std::vector<pid_t> wanted = std::exchange(wanted_, {});
    lock.unlock();
    if (!view || !view->usable()) view = std::make_unique<View>(runtime_);
    view->pages.renew();
    const auto states = thread_states(view->objects, runtime_);
    std::vector<TritonReading> found;
    for (pid_t tid : wanted) {
      const auto state = states.find(tid);
      if (state == states.end()) continue;
      const auto deadline = std::chrono::steady_clock::now() + kLook;
      auto kernel = read_triton_kernel(view->view, view->pages, state->second, deadline);
      if (kernel) found.push_back({monotonic_ns(), tid, std::move(*kernel)});
    }
    lock.lock();
    for (TritonReading& reading : found)
      if (readings_.size() < kMaxKept) readings_.push_back(std::move(reading));
  }
}

}  // namespace dynprof
