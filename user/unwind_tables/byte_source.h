// Where an ELF image is read from: an open file, by pread (a file that is truncated meanwhile gives a
// short read, never SIGBUS), or bytes already in memory (the vdso).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/symbols/read_budget.h"

namespace dynprof {

using ByteView = std::span<const std::uint8_t>;

// Bytes that are owned, or a view of bytes owned elsewhere.
class ByteBlock {
 public:
  ByteBlock() = default;
  explicit ByteBlock(ByteView view) : view_(view) {}
  ByteBlock(std::unique_ptr<std::uint8_t[]> bytes, std::size_t size)
      : owned_(std::move(bytes)), view_(owned_.get(), size) {}
  ByteView view() const { return view_; }

 private:
  std::unique_ptr<std::uint8_t[]> owned_;
  ByteView view_;
};

class ByteSource {
 public:
  ByteSource() = default;
  // A regular file. Its size is taken now; what it gains later is not read.
  static Result<ByteSource> of_file(UniqueFd file);
  // The bytes must outlive the source.
  static ByteSource of_bytes(ByteView bytes);

  // From now on every read is charged to it, and fails once it is used up. It must outlive the reads.
  void pay_from(ReadBudget* budget) { budget_ = budget; }
  ReadBudget* budget() const { return budget_; }

  std::uint64_t size() const { return size_; }
  int file() const { return file_.get(); }  // -1: bytes
  ByteView bytes() const { return bytes_; }
  // All of it, or false.
  bool read(std::uint64_t offset, std::span<std::uint8_t> into) const;
  // `size` must have been bounded by the caller. nullopt when it is not all there.
  std::optional<ByteBlock> block(std::uint64_t offset, std::uint64_t size) const;

  template <class T>
  bool read_value(std::uint64_t offset, T& value) const {
    return read(offset, {reinterpret_cast<std::uint8_t*>(&value), sizeof value});
  }

 private:
  bool inside(std::uint64_t offset, std::uint64_t size) const {
    return offset <= size_ && size <= size_ - offset;
  }

  UniqueFd file_;
  ByteView bytes_;
  ReadBudget* budget_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace dynprof
