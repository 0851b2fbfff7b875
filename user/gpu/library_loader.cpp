#include "user/gpu/library_loader.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "symbolizer/attribution/process_purpose.h"
#include "symbolizer/base/text.h"
#include "user/gpu/gpu_process.h"
#include "user/gpu/library_path.h"
#include "user/inject/load_library.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

constexpr std::size_t kAtOnce = 16;  // a job has 8 ranks on a machine, seldom 16
constexpr std::chrono::milliseconds kPoll{10};
// What torch names the main thread of a DataLoader's worker (torch 2.6 and later).
constexpr const char* kDataWorker = "pt_data_worker";

bool is_worker_of_torch(pid_t pid) {
  if (read_comm(pid, pid) == kDataWorker) return true;
  const Purpose purpose = purpose_of(read_arguments(pid), base_name(read_exe(pid)));
  return purpose == Purpose::kWorker || purpose == Purpose::kAutotuning;
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

}  // namespace

bool is_copy_of_cuda_process(pid_t pid) {
  const auto stat = read_process_stat(pid);
  if (!stat || !stat->forked) return false;
  const auto parents = read_mappings(stat->parent);
  return parents && find_cuda(*parents).driver;
}

LibraryLoader::LibraryLoader(RankSet ranks, const std::vector<pid_t>& targets)
    : ranks_(std::move(ranks)), targets_(targets.begin(), targets.end()) {}

LibraryLoader::~LibraryLoader() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

bool LibraryLoader::wants(pid_t pid) const {
  const std::string rank = read_environment(pid, "RANK");
  if (targets_.contains(pid)) return !is_rank(rank) || ranks_.contains(rank);
  return ranks_.contains(rank) && !is_worker_of_torch(pid);
}

bool LibraryLoader::begin(pid_t pid) {
  {
    const std::lock_guard lock(mutex_);
    if (running_ == kAtOnce) return false;
    ++running_;
  }
  threads_.emplace_back([this, pid] { load(pid); });
  return true;
}

void LibraryLoader::load(pid_t pid) {
  const auto loaded = load_into_python(pid, gpu_library_path(),
                                       {.stop_requested = [this] { return stop_.load(); }});
  Outcome outcome{.pid = pid,
                  .note = loaded ? loaded_note(pid, *loaded)
                                 : fmt::format("libdynprof_cupti.so was not loaded into {}: {}",
                                               name_of(pid), loaded.error().what),
                  .loaded = loaded.has_value()};
  const std::lock_guard lock(mutex_);
  ended_.push_back(std::move(outcome));
  --running_;
}

std::vector<LibraryLoader::Outcome> LibraryLoader::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
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
