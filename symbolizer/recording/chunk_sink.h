// Appends whole chunks to a file. The first failed write ends it: the file is cut back to its last
// whole chunk, the error is kept, and later chunks are dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "symbolizer/base/byte_writer.h"
#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/format.h"
#include "symbolizer/recording/payload.h"

namespace dynprof::recording {

class ChunkSink {
 public:
  explicit ChunkSink(UniqueFd file) : file_(std::move(file)) {}

  void write_file_header();
  // True if it is on its way to the disk as a whole.
  bool append(ChunkKind kind, std::uint64_t first, std::uint64_t count,
              std::span<const std::uint8_t> raw);

  const std::optional<Error>& error() const { return error_; }
  // Ends it for a reason of the caller's.
  void close(Error reason) {
    closed_ = true;
    if (!error_) error_ = std::move(reason);
  }
  // Nothing comes after the end mark.
  void seal() { closed_ = true; }
  // After a failure that left a clean end, try again: a trailer may fit where samples did not. The
  // error stays.
  void retry() { closed_ = !clean_; }
  std::uint64_t size() const { return size_; }
  std::uint32_t chunks() const { return sequence_; }

 private:
  bool take(std::span<const std::uint8_t> bytes);
  void fail(int errno_value);

  UniqueFd file_;
  PayloadEncoder encoder_;
  ByteWriter buffer_;
  std::optional<Error> error_;
  bool closed_ = false;  // nothing more may be appended
  bool clean_ = true;    // the file ends with a whole chunk
  std::uint64_t size_ = 0;
  std::uint32_t sequence_ = 0;
};

}  // namespace dynprof::recording
