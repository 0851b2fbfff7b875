// Reading another process's memory. The target runs on while we read: what comes back may be torn,
// freed or reused, so every caller bounds what it asks for and checks what it gets.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

struct Mapping;

// One piece of a vectored read. `done` is how many bytes from the start were read.
struct RemoteRange {
  std::uint64_t address = 0;
  std::span<std::byte> into;
  std::size_t done = 0;
  bool complete() const { return done == into.size(); }
};

class RemoteMemory {
 public:
  RemoteMemory() = default;
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;
  virtual ~RemoteMemory() = default;

  // Reads each range on its own; one that faults does not stop the others.
  virtual void read_many(std::span<RemoteRange> ranges) = 0;
  // For a reader that tries again where the target has changed what it reads: never answers from pages that are held.
  virtual RemoteMemory& current() { return *this; }

  // All of it or false.
  bool read(std::uint64_t address, std::span<std::byte> into);

  template <class T>
  std::optional<T> read(std::uint64_t address) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    if (!read(address, std::as_writable_bytes(std::span<T, 1>(&value, 1)))) return std::nullopt;
    return value;
  }
  // A pointer that could be one to an object: not null, 8-byte aligned, in the lower half.
  std::optional<std::uint64_t> read_pointer(std::uint64_t address);

  // A NUL-terminated string of at most `limit` bytes; nullopt when it does not end there.
  std::optional<std::string> read_c_string(std::uint64_t address, std::size_t limit);
};

// Whether `value` can be the address of a Python object in an x86-64 user address space.
inline bool plausible_pointer(std::uint64_t value) {
  return value >= 4096 && value < (1ULL << 47) && value % 8 == 0;
}

// The memory of a live process: by the InPlaceReader where one is installed and the pages are present, else by
// process_vm_readv, or /proc/PID/mem where that call is forbidden.
class ProcessMemory final : public RemoteMemory {
 public:
  enum class Way : std::uint8_t { kCall, kFile };
  explicit ProcessMemory(pid_t pid, Way way = Way::kCall);

  void read_many(std::span<RemoteRange> ranges) override;

  pid_t pid() const { return pid_; }
  // The errno of the last failure: EPERM, ESRCH (the process is gone) or EFAULT.
  int last_error() const { return last_error_; }
  // Whether we may read it at all: one byte of its first mapping.
  Result<void> check_access();
  Result<void> check_access(std::span<const Mapping> mappings);

 private:
  void read_slowly(std::span<RemoteRange> ranges);
  void read_by_call(std::span<RemoteRange> ranges);
  void read_by_file(std::span<RemoteRange> ranges);

  pid_t pid_;
  UniqueFd file_;
  Way way_;
  int last_error_ = 0;
};

}  // namespace dynprof
