// The thread behind NativeUnwind: owns the tables and what is published of each address space. All
// members are its own; commands come through NativeUnwind's queue.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "user/stacks/native_maps.h"
#include "user/stacks/native_unwind.h"
#include "user/unwind_tables/mappings.h"
#include "user/unwind_tables/table_pool.h"

namespace dynprof {

class NativeWorker {
 public:
  // `table_bytes`: of all tables together; a CUDA torch process has some 4 M rows, 32 MB.
  NativeWorker(NativeMaps maps, unsigned threads, TableCache* cache, std::uint64_t table_bytes)
      : maps_(std::move(maps)), pool_(threads, cache, accounts_), max_bytes_(table_bytes) {}

  // Makes these slots such that their spaces can be published at once; those that are so already are left.
  void make_ready(std::span<const std::uint32_t> slots);

  // Reads the mappings of a space and publishes what changed. When they are to be read again at the
  // earliest, as a distance in ns.
  std::uint64_t look(NativeSpace& space);
  void drop(std::uint32_t slot);
  // Publishes tables that are ready.
  void take_tables();
  // Drops tables that have not been used for a while: the next compiler started maps the same files.
  void forget_idle();

  int ready_fd() const { return pool_.ready_fd(); }
  bool idle() const { return pool_.pending() == 0; }
  std::string take_problem();
  // Said once.
  void problem(std::string sentence);

 private:
  static constexpr std::size_t kMaxBatchBytes = std::size_t{64} << 20;
  static constexpr std::uint64_t kKeepIdleNs = 30'000'000'000;
  static constexpr std::uint64_t kSoonNs = 3'000'000;
  static constexpr std::uint64_t kSlowestNs = 1'000'000'000;

  // libtorch_cpu.so, the largest of torch's, takes 120 MB and a second.
  static constexpr ReadLimits kLimits = {
      .file = {std::uint64_t{1} << 30, std::chrono::seconds(20)},
      .process = {std::uint64_t{8} << 30, std::chrono::seconds(60)},
      .all = {std::uint64_t{64} << 30, std::chrono::seconds(600)}};
  // Of the slots and the memory for all tables one process may take a fourth.
  static constexpr std::uint64_t kShares = 4;

  struct Table {
    pid_t pid = 0;  // that mapped it first: counted as its
    bool cut =
        false;  // the budget of that process was used up: that of the next one that maps it may not be
    std::uint32_t slot = 0;
    std::uint32_t serial = 0;
    std::uint32_t spaces = 0;  // that use it
    std::uint64_t idle_since_ns = 0;
    std::size_t bytes = 0;
  };
  struct Published {
    std::vector<dp_native_mapping> mappings;
    std::set<std::string> tables;  // keys
    std::uint64_t backoff_ns = kSoonNs;
  };

  dp_native_mapping entry_for(pid_t pid, const CodeMapping& code, Published& into);
  Table* table_for(pid_t pid, const CodeMapping& code);
  void ask_again(pid_t pid, const CodeMapping& code, Table& table);
  bool request(pid_t pid, const CodeMapping& code, std::uint64_t id);
  void release(const std::string& key);
  using Tables = std::map<std::string, Table>;
  // What the tables of one process take.
  struct Share {
    std::size_t tables = 0;
    std::uint64_t bytes = 0;
  };

  ReadAccounts accounts_{kLimits};  // the pool's threads use it
  NativeMaps maps_;
  CodeFiles files_{accounts_};
  TablePool pool_;
  const std::uint64_t max_bytes_;
  Tables tables_;                                   // by CodeFile::key
  std::map<std::uint64_t, std::string> requested_;  // by request id, its serial
  std::map<std::uint32_t, Published> spaces_;       // by slot
  std::map<pid_t, Share> shares_;
  std::vector<std::uint32_t> free_slots_;
  std::uint32_t next_slot_ = 1;
  std::uint32_t next_serial_ = 1;
  std::uint64_t next_content_ = 1;
  std::size_t bytes_ = 0;
  std::set<std::string> told_;
  std::vector<std::string> problems_;
};

}  // namespace dynprof
