// Makes unwind tables on a few threads of its own, so that neither sampling nor reading events waits
// for a large library. One owner submits and takes; what is done first comes first. The destructor
// cancels what is under way and drops the rest.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/target/read_accounts.h"
#include "user/unwind_tables/table_cache.h"
#include "user/unwind_tables/unwind_table.h"

namespace dynprof {

struct TableRequest {
  std::uint64_t id = 0;  // the caller's own
  // An open file, or where there is none an image in memory.
  UniqueFd file;
  std::vector<std::uint8_t> image;
  // Where a separate debug file is looked for; an invalid root: nowhere.
  UniqueFd root;
  std::string path;
  pid_t pid = 0;  // of the process that maps it: it pays
};

struct TableResult {
  std::uint64_t id = 0;
  Result<UnwindTable> table;
  std::chrono::nanoseconds took{0};
  std::string cache_problem;  // why nothing was stored, or ""
  bool cut = false;           // its process had nothing left for it
};

class TablePool {
 public:
  static constexpr std::size_t kMaxRequests = 4096;  // each can hold two descriptors
  // Tables not yet taken: at this size threads stop until some are taken.
  static constexpr std::size_t kMaxWaitingBytes = std::size_t{96} << 20;

  // The cache may be null; it and the accounts must outlive the pool. At most 8 threads.
  TablePool(unsigned threads, TableCache* cache, ReadAccounts& accounts);
  ~TablePool();
  TablePool(const TablePool&) = delete;
  TablePool& operator=(const TablePool&) = delete;

  // False when too many wait already: the request is untouched, try again later.
  bool submit(TableRequest& request);
  // A finished one, without waiting.
  std::optional<TableResult> take();
  // The same, waiting up to `limit`; nullopt also when nothing is under way.
  std::optional<TableResult> wait(std::chrono::milliseconds limit);
  // Requests whose results have not been taken.
  std::size_t pending() const;
  // An eventfd that is readable while results wait.
  int ready_fd() const { return ready_.get(); }

 private:
  void work();
  TableResult make(TableRequest& request) const;
  void publish(TableResult result);
  std::optional<TableResult> take_locked();

  TableCache* cache_;
  ReadAccounts& accounts_;
  UniqueFd ready_;
  std::atomic<bool> cancelled_{false};
  mutable std::mutex mutex_;
  std::condition_variable requested_, finished_, taken_;
  std::deque<TableRequest> requests_;
  std::deque<TableResult> results_;
  std::size_t waiting_bytes_ = 0;
  std::size_t pending_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace dynprof
