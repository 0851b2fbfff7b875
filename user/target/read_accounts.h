// How much is read of the files of each process, and of all together. A process may map thousands of files
// made to be slow to read: it then has no names and no native stacks, and the others have theirs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>

#include "symbolizer/symbols/read_budget.h"

namespace dynprof {

struct ReadLimit {
  std::uint64_t bytes = 0;
  std::chrono::milliseconds time{0};
};

struct ReadLimits {
  ReadLimit file, process, all;
};

// For programs that read files of their own: tests and tools.
inline constexpr ReadLimits kWideReadLimits = {{1ULL << 30, std::chrono::seconds(60)},
                                               {1ULL << 40, std::chrono::hours(1)},
                                               {1ULL << 40, std::chrono::hours(1)}};

// Safe to use from several threads. Files of one process that are read at the same time each get what was
// left of it when they began.
class ReadAccounts {
 public:
  explicit ReadAccounts(const ReadLimits& limits) : limits_(limits) {}

  // One file, or one after the other, while this lives; then what was used is paid. A file that was cut is
  // counted and reported (read_losses.h).
  class Reading {
   public:
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading();
    ReadBudget& budget() { return budget_; }
    // What it may take at most; 0: nothing is left.
    std::chrono::milliseconds time() const { return time_; }

   private:
    friend class ReadAccounts;
    Reading(ReadAccounts& accounts, pid_t pid, const ReadLimit& limit)
        : accounts_(accounts),
          pid_(pid),
          bytes_(limit.bytes),
          time_(limit.time),
          budget_(limit.bytes, limit.time) {}

    ReadAccounts& accounts_;
    pid_t pid_;
    std::uint64_t bytes_;
    std::chrono::milliseconds time_;
    ReadBudget::Clock::time_point began_ = ReadBudget::Clock::now();
    ReadBudget budget_;
  };
  // `pid` 0: of no process, only the limits of a file and of all hold.
  Reading begin(pid_t pid);
  // Of the processes that share a file, at least one, that with most time left: one that has used up its budget
  // must not affect the others.
  pid_t richest(std::span<const pid_t> pids);

 private:
  // Beyond so many processes the oldest accounts are forgotten; the one of all stays.
  static constexpr std::size_t kMaxProcesses = 16'384;

  void pay(pid_t pid, const ReadLimit& used);

  const ReadLimits limits_;
  std::mutex mutex_;
  std::map<pid_t, ReadLimit> used_;
  ReadLimit used_by_all_;
};

}  // namespace dynprof
