// Writing to another process's memory: its data as it may write it, and its code.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

// To memory that the process itself may write. All of it or an error.
Result<void> write_data(pid_t pid, std::uint64_t address, std::span<const std::byte> bytes);

template <class T>
Result<void> write_value(pid_t pid, std::uint64_t address, const T& value) {
  return write_data(pid, address, std::as_bytes(std::span<const T, 1>(&value, 1)));
}

// To memory that the process may only read or execute: the page becomes a copy of its own.
class CodeWriter {
 public:
  static Result<CodeWriter> open(pid_t pid);
  Result<void> write(std::uint64_t address, std::span<const std::byte> bytes) const;

 private:
  CodeWriter(pid_t pid, UniqueFd memory) : pid_(pid), memory_(std::move(memory)) {}
  pid_t pid_;
  UniqueFd memory_;
};

}  // namespace dynprof
