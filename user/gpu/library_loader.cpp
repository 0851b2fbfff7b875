#include "user/gpu/library_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "bpf/events.h"
#include "symbolizer/attribution/process_purpose.h"
#include "symbolizer/base/text.h"
#include "user/gpu/library_path.h"
#include "user/inject/load_library.h"
#include "user/target/descendants.h"
#include "user/target/process.h"
#include "user/target/torch_worker.h"

namespace dynprof {
namespace {

constexpr std::size_t kAtOnce = 16;  // a job has 8 ranks on a machine, seldom 16
constexpr std::chrono::milliseconds kPoll{10};
// What torch names the main thread of a DataLoader's worker (torch 2.6 and later).
constexpr const char* kDataWorker = "pt_data_worker";

bool is_worker_of_torch(pid_t pid) {
  if (read_comm(pid, pid) == kDataWorker) return true;
  const Purpose purpose = read_purpose(pid);
  return purpose == Purpose::kWorker || purpose == Purpose::kAutotuning;
}

// In a process that was forked the library is mapped, but its thread is not there.
bool library_runs(pid_t pid) {
  auto threads = list_threads(pid);
  return threads && std::any_of(threads->begin(), threads->end(),
                                [&](pid_t tid) { return read_comm(pid, tid) == "dynprof-gpu"; });
}

std::string name_of(pid_t pid) {
  const std::string rank = read_environment(pid, "RANK");
  return is_rank(rank) ? fmt::format("process {} (rank {})", pid, rank)
                       : fmt::format("process {}", pid);
}

std::string loaded_note(pid_t pid, const Loaded& loaded) {
  std::string text =
      fmt::format("libdynprof_cupti.so was loaded into {} {}", name_of(pid), loaded.how);
  if (loaded.stopped_ns != 0)
    text += fmt::format("; its main thread was stopped for {:.2f} ms",
                        static_cast<double>(loaded.stopped_ns) / 1e6);
  return text;
}

std::string not_loaded_note(pid_t pid, const Error& why, bool stopped) {
  std::string text =
      fmt::format("libdynprof_cupti.so was not loaded into {}: {}", name_of(pid), why.what);
  if (stopped) return text;
  return text + "; " +
         (why.hint.empty()
              ? fmt::format("for times on the GPU, start the job with CUDA_INJECTION64_PATH={}",
                            gpu_library_path())
              : why.hint);
}

}  // namespace

CudaMappings cuda_of(pid_t pid) {
  auto mappings = read_mappings(pid);
  if (!mappings) return {};
  CudaMappings cuda = find_cuda(*mappings);
  if (cuda.library && !library_runs(pid)) cuda = {};
  return cuda;
}

bool is_copy_of_cuda_process(pid_t pid) {
  const auto stat = read_process_stat(pid);
  if (!stat || !stat->forked) return false;
  const auto parents = read_mappings(stat->parent);
  return parents && find_cuda(*parents).driver;
}

CudaUse find_cuda_use(pid_t target, bool children) {
  CudaUse use;
  const auto descendants =
      children ? find_descendants({target}, DP_MAX_PROCESSES) : std::vector<Descendant>();
  for (const auto& [pid, parent] : descendants) {
    const CudaMappings cuda = cuda_of(pid);
    // One that has only imported torch maps the runtime.
    if ((!cuda.driver && !cuda.library) || is_copy_of_cuda_process(pid)) continue;
    use.any = true;
    if (!cuda.library) use.without_library.push_back(pid);
  }
  const CudaMappings cuda = cuda_of(target);
  // torchrun maps the runtime too, and launches nothing.
  if (!cuda.library && (cuda.driver || (cuda.runtime && !use.any)))
    use.without_library.push_back(target);
  use.any = use.any || cuda.best() != GpuTier::kNone;
  return use;
}

std::vector<pid_t> find_loadable(const std::vector<pid_t>& targets, bool children) {
  const LibraryLoader all(RankSet(), targets);
  std::vector<pid_t> found;
  for (const pid_t target : targets)
    for (const pid_t pid : find_cuda_use(target, children).without_library)
      if (all.wants(pid) && can_load_into_python(pid)) found.push_back(pid);
  return found;
}

LibraryLoader::LibraryLoader(RankSet ranks, const std::vector<pid_t>& targets)
    : ranks_(std::move(ranks)), targets_(targets.begin(), targets.end()) {}

LibraryLoader::~LibraryLoader() {
  stop_ = true;
  for (auto& [pid, thread] : threads_) thread.join();
}

bool LibraryLoader::wants(pid_t pid) const {
  const std::string rank = read_environment(pid, "RANK");
  if (targets_.contains(pid)) return !is_rank(rank) || ranks_.contains(rank);
  return ranks_.contains(rank) && !is_worker_of_torch(pid);
}

bool LibraryLoader::begin(pid_t pid) {
  if (threads_.contains(pid)) return false;
  {
    const std::lock_guard lock(mutex_);
    if (running_ == kAtOnce) return false;
    ++running_;
  }
  threads_.emplace(pid, [this, pid] { load(pid); });
  return true;
}

void LibraryLoader::load(pid_t pid) {
  const auto loaded = load_into_python(pid, gpu_library_path(),
                                       {.stop_requested = [this] { return stop_.load(); }});
  Outcome outcome{
      .pid = pid,
      .note = loaded ? loaded_note(pid, *loaded) : not_loaded_note(pid, loaded.error(), stop_),
      .loaded = loaded.has_value()};
  const std::lock_guard lock(mutex_);
  ended_.push_back(std::move(outcome));
  --running_;
}

std::vector<LibraryLoader::Outcome> LibraryLoader::take() {
  std::vector<Outcome> ended;
  {
    const std::lock_guard lock(mutex_);
    ended = std::exchange(ended_, {});
  }
  for (const Outcome& outcome : ended) {
    const auto thread = threads_.find(outcome.pid);
    thread->second.join();
    threads_.erase(thread);
  }
  return ended;
}

bool LibraryLoader::busy() {
  const std::lock_guard lock(mutex_);
  return running_ > 0;
}

std::vector<LibraryLoader::Outcome> LibraryLoader::wait(
    const std::function<bool()>& stop_requested) {
  for (; busy(); std::this_thread::sleep_for(kPoll))
    if (stop_requested && stop_requested()) stop_ = true;
  return take();
}

}  // namespace dynprof
