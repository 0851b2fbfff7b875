// Loads libdynprof_cupti.so into processes that use CUDA, for --gpu on: the targets and their children, each in a
// thread of its own, since a process may take seconds to come to a point where it can be loaded.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "symbolizer/base/result.h"
#include "user/gpu/gpu_process.h"
#include "user/gpu/rank_set.h"
#include "user/inject/loading.h"

namespace dynprof {

// What a process maps of CUDA, and the library if it runs there.
CudaMappings cuda_of(pid_t pid);

// A process and its children, as far as they use CUDA.
struct CudaUse {
  bool any = false;
  std::vector<pid_t> without_library;
};
CudaUse find_cuda_use(pid_t target, bool children);
// Those of them that the library can be loaded into.
std::vector<pid_t> find_loadable(const std::vector<pid_t>& targets, bool children);

// A copy of a process that used CUDA before the fork: it maps CUDA, which does not work in it.
bool is_copy_of_cuda_process(pid_t pid);

class LibraryLoader {
 public:
  struct Outcome {
    pid_t pid = 0;
    std::string note;
    bool loaded = false;
  };

  // `targets` are those the user named.
  LibraryLoader(RankSet ranks, const std::vector<pid_t>& targets);
  // Cancels what is under way.
  ~LibraryLoader();
  LibraryLoader(const LibraryLoader&) = delete;
  LibraryLoader& operator=(const LibraryLoader&) = delete;

  // Whether a process that uses CUDA is to have it: not a worker of torch's (DataLoader, compiles, autotuning), nor
  // another rank than those asked for.
  bool wants(pid_t pid) const;
  // False: too many are being loaded into, or this one is; ask again.
  bool begin(pid_t pid);
  // What has ended since the last call.
  std::vector<Outcome> take();
  // Waits for those that were begun. They are cancelled when `stop_requested` (may be empty) returns true.
  std::vector<Outcome> wait(const std::function<bool()>& stop_requested);

 private:
  bool busy();
  void load(pid_t pid);

  const RankSet ranks_;
  const std::set<pid_t> targets_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::vector<Outcome> ended_;
  std::size_t running_ = 0;
  std::map<pid_t, std::thread> threads_;  // until their outcome is taken
};

}  // namespace dynprof
