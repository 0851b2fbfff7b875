#include "user/torch/line_watch.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

#include "user/kernel/thread_priority.h"
#include "user/live/compile_lock.h"
#include "user/live/python_threads.h"
#include "user/live/thread_moment.h"
#include "user/preflight/capabilities.h"
#include "user/target/bounded_memory.h"
#include "user/target/clock.h"
#include "user/torch/line_pace.h"

namespace dynprof {
namespace {

// Of a core, for the names of threads.
constexpr int kShare = 100;
// A thread that never stands still for so long is passed over.
constexpr std::chrono::milliseconds kLook{5};
// Blocks are held for so many readings in which nothing was asked of them.
constexpr unsigned kKeptReadings = 2;
constexpr std::size_t kMaxKept = 4096;
constexpr std::uint64_t kViewNs = 10'000'000'000;
// Between two readings of the names of threads; more where there are many, for the same share of a core.
constexpr std::uint64_t kNamesNs = 1'000'000'000;
constexpr std::size_t kMaxReads = 4'000'000;
constexpr std::size_t kMaxBytes = std::size_t{2} << 30;

TorchIds ids_of(const TraceId& id, std::int32_t attempt) {
  return {id.autograd, id.frame, id.compile, attempt};
}

// What does not fit is dropped: the readings were not taken in time.
template <class Reading>
void append(std::vector<Reading>& found, std::vector<Reading>& kept) {
  const std::size_t room = kMaxKept - std::min(kMaxKept, kept.size());
  found.resize(std::min(room, found.size()));
  std::move(found.begin(), found.end(), std::back_inserter(kept));
}

std::unordered_map<std::uint64_t, pid_t> tids_by_pthread(
    RemoteObjects& objects, const PythonRuntime& runtime,
    const std::map<pid_t, std::uint64_t>& states) {
  std::unordered_map<std::uint64_t, pid_t> tids;
  for (const RemoteThread& thread : walk_interpreters(objects, runtime.runtime).threads) {
    for (auto [tid, tstate] : states)
      if (tstate == thread.tstate) tids[thread.pthread] = tid;
  }
  return tids;
}

}  // namespace

// What is looked up once and holds for a while: modules, thread-locals, types.
struct LineWatch::View {
  explicit View(const PythonRuntime& runtime)
      : process(runtime.pid),
        memory(process, kMaxReads, kMaxBytes),
        objects(memory, runtime.layout),
        view((objects.set_str_type(runtime.str_type), process), objects, runtime),
        torch(view),
        compile_lock(view),
        pages(process),
        page_memory(pages, kMaxReads, kMaxBytes),
        page_objects(page_memory, runtime.layout),
        code((page_objects.set_str_type(runtime.str_type), process), page_objects, runtime),
        until_ns(monotonic_ns() + kViewNs) {
    pages.keep_unused(kKeptReadings);
    code.stacks.keep_unused(kKeptReadings);
  }
  bool usable() const {
    return torch.complete() && !memory.exhausted() && !page_memory.exhausted() &&
           monotonic_ns() < until_ns;
  }

  ProcessMemory process;
  BoundedMemory memory;  // however objects point at each other, reading them ends
  RemoteObjects objects;
  TargetView view;
  TorchReader torch;
  CompileLock compile_lock;
  // For lines: some hundred objects, which are read a block at a time.
  SnapshotMemory pages;
  BoundedMemory page_memory;
  RemoteObjects page_objects;
  TargetView code;
  std::uint64_t until_ns;
};

LineWatch::LineWatch(const PythonRuntime& runtime, std::vector<std::string> packages,
                     bool all_lines)
    : runtime_(runtime),
      packages_(std::move(packages)),
      all_lines_(all_lines),
      thread_([this] { run(); }) {}

LineWatch::~LineWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void LineWatch::wake() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(awake_, true)) return;
  }
  changed_.notify_one();
}

CompileReadings LineWatch::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(readings_, {});
}

void LineWatch::run() {
  ::prctl(PR_SET_NAME, "dynprof-lines");
  keep_only_reading();
  set_background_priority();
  std::uint64_t last_ns = 0;  // 0: the reading before is too old to count from
  std::uint64_t names_due_ns = 0;
  LinePace pace(all_lines_);
  std::unique_ptr<View> view;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || awake_; });
    if (stop_) return;
    lock.unlock();
    const std::uint64_t begin_ns = monotonic_ns();
    const std::uint64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    CompileReadings found;
    const bool first_of_view = !view || !view->usable();
    if (first_of_view) view = std::make_unique<View>(runtime_);
    bool compiles = read(*view, last_ns ? begin_ns - last_ns : 0, found);
    // CPU time, because on a busy machine a reading waits and costs no more. The first reading of a View reads the names of
    // the stack as well, up to 60 ms, and says nothing about the next.
    const std::uint64_t read_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    const std::chrono::nanoseconds took(first_of_view ? 0 : read_ns - cpu_ns);
    if (compiles && begin_ns >= names_due_ns) {
      found.names = read_names(*view);
      const std::uint64_t names_took_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - read_ns;
      names_due_ns = begin_ns + std::max(kNamesNs, kShare * names_took_ns);
    }
    last_ns = begin_ns;
    pace.read(compiles);
    lock.lock();
    append(found.lines, readings_.lines);
    append(found.locks, readings_.locks);
    if (!found.names.empty() && readings_.names.size() < kMaxKept) {
      found.names.merge(readings_.names);  // the new ones stay
      readings_.names = std::move(found.names);
    }
    if (pace.idle()) {
      awake_ = false;
      pace = LinePace(all_lines_);
      last_ns = 0;
      view.reset();
      continue;
    }
    changed_.wait_for(lock, pace.next(took), [&] { return stop_; });
  }
}

std::map<pid_t, std::string> LineWatch::read_names(View& shared) const {
  std::map<pid_t, std::string> names;
  const auto states = thread_states(shared.objects, runtime_);
  if (states.size() < 2) return names;
  const auto tids = tids_by_pthread(shared.objects, runtime_, states);
  for (auto& [ident, name] : python_thread_names(shared.view)) {
    if (auto tid = tids.find(ident); tid != tids.end()) names.emplace(tid->second, std::move(name));
  }
  return names;
}

bool LineWatch::read(View& shared, std::uint64_t since_ns, CompileReadings& out) const {
  RemoteObjects& objects = shared.objects;
  TorchReader& torch = shared.torch;
  auto states = thread_states(objects, runtime_);
  bool compiles = false;
  for (auto [tid, tstate] : states) {
    const TorchOpenCompile open = torch.read_open(tid, tstate);
    if (!open.compiling()) continue;
    compiles = true;
    auto deadline = std::chrono::steady_clock::now() + kLook;
    UserCode code = read_user_code_now(shared.code, shared.pages, tstate, deadline);
    if (!code.use || code.lines.empty() || torch.read_open(tid, tstate).id != open.id) continue;
    LineReading reading;
    reading.time_ns = monotonic_ns();
    reading.weight_ns = since_ns;
    reading.tid = tid;
    reading.ids = ids_of(open.id, open.attempt);
    reading.use = *code.use;
    reading.line = own_line(code.lines, packages_);
    reading.module = std::move(code.module);
    out.lines.push_back(std::move(reading));
  }
  if (!compiles) return false;
  if (states.size() < 2) return true;  // no other thread can wait for the lock
  std::unordered_map<std::uint64_t, pid_t> by_pthread;
  for (auto [tid, tstate] : states) {
    auto owner = shared.compile_lock.owner_waited_for(tid);
    if (!owner) continue;
    if (by_pthread.empty()) by_pthread = tids_by_pthread(objects, runtime_, states);
    auto holder = by_pthread.find(*owner);
    out.locks.push_back(
        {monotonic_ns(), since_ns, tid, holder != by_pthread.end() ? holder->second : 0});
  }
  return true;
}

}  // namespace dynprof
