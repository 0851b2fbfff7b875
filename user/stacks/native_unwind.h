// What the kernel side needs to unwind native stacks: per followed process its executable mappings,
// per file its unwind table, shared by all processes that map it. Everything is read and built on
// threads of its own: neither sampling nor reading events ever waits for a library.
//
// A space is looked at when it is asked for and again when a sample meets code that it does not know
// (a library mapped since); what is no longer used is dropped. Where the kernel's memory or our
// bounds end, stacks are cut, counted, and one line says why.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "user/target/process.h"
#include "user/unwind_tables/table_cache.h"

namespace dynprof {

// An address space as the kernel side knows it. Shared by processes until one of them maps something
// of its own; its slot is given back when the last of them goes.
struct NativeSpace {
  std::uint32_t slot = 0;
  std::uint32_t owner = 0;
  pid_t pid = 0;                          // whose mappings these are
  std::atomic<std::uint32_t> version{0};  // of the mappings the kernel side knows

  // Those mappings: all that is left of a process that has ended.
  std::vector<Mapping> mappings() const {
    const std::lock_guard lock(mutex_);
    return mappings_;
  }
  void set_mappings(std::vector<Mapping> mappings) {
    const std::lock_guard lock(mutex_);
    mappings_ = std::move(mappings);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Mapping> mappings_;
};
using NativeSpaceRef = std::shared_ptr<NativeSpace>;

struct NativeLimits {
  std::string cache = kDefaultCacheDirectory;            // where tables are kept on disk
  std::uint64_t table_bytes = std::uint64_t{512} << 20;  // of the kernel's memory for all of them
};

class NativeUnwind {
 public:
  // Descriptors of the maps `unwind_tables` and `native_spaces`; they must outlive this.
  static std::unique_ptr<NativeUnwind> start(int unwind_tables, int native_spaces,
                                             const NativeLimits& limits = {});
  virtual ~NativeUnwind() = default;

  // Null when there are too many. Nothing is read until look(). The space may outlive this object.
  virtual NativeSpaceRef space_of(pid_t pid) = 0;
  // Reads its mappings, soon and not too often.
  virtual void look(const NativeSpaceRef& space) = 0;
  // Waits until everything asked for is there, or for `limit`.
  virtual void settle(std::chrono::milliseconds limit) = 0;
  // Why stacks will be cut; once each, "" otherwise.
  virtual std::string take_problem() = 0;
};

}  // namespace dynprof
