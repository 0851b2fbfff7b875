// Finds the chunks of a file one after the other and reads their payloads. Read with pread, not
// mapped: a file that is cut while we read it is then a short read, not a SIGBUS.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/damage.h"
#include "symbolizer/recording/format.h"
#include "symbolizer/recording/payload.h"

namespace dynprof::recording {

struct Chunk {
  ChunkHeader header;
  std::uint64_t offset = 0;  // of the payload
};

class ChunkFile {
 public:
  // `name` is for messages.
  static Result<ChunkFile> open(const std::string& path);
  static Result<ChunkFile> from_fd(UniqueFd file, const std::string& name);

  std::uint64_t size() const { return size_; }

  // The next chunk whose header is intact and whose payload lies in the file. What is skipped on
  // the way is counted. Time is linear in the size of the file.
  std::optional<Chunk> next(Damage& damage);
  // To be called at an end mark: what follows is not read.
  void stop(Damage& damage);

  // The expanded payload, valid until the next call. Empty if it is damaged, which is counted.
  std::optional<std::span<const std::uint8_t>> load(const Chunk& chunk, Damage& damage);

 private:
  ChunkFile(UniqueFd file, std::uint64_t size, std::uint64_t at)
      : file_(std::move(file)), size_(size), at_(at) {}

  // Bytes read, fewer than asked at the end of the file or on an error.
  std::size_t read_at(std::uint64_t offset, std::span<std::uint8_t> out) const;
  std::span<const std::uint8_t> window(std::uint64_t offset, std::size_t bytes);
  std::optional<ChunkHeader> header_at(std::uint64_t offset);
  std::optional<std::uint64_t> find_header(std::uint64_t from);

  UniqueFd file_;
  std::uint64_t size_;
  std::uint64_t at_;  // where the next header should be
  std::vector<std::uint8_t> window_;
  std::uint64_t window_at_ = 0;
  std::size_t window_bytes_ = 0;
  std::vector<std::uint8_t> stored_;
  PayloadDecoder decoder_;
};

}  // namespace dynprof::recording
