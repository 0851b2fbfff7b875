#include "symbolizer/recording/chunk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "symbolizer/recording/open_fd.h"

namespace dynprof::recording {
namespace {

// Of the file, read at a time while looking at headers.
constexpr std::size_t kWindowBytes = 16 * 1024;

}  // namespace

Result<UniqueFd> open_for_reading(const std::string& path) {
  // O_NONBLOCK: a FIFO must not hang us.
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) {
    const int value = errno;
    std::string hint;
    if (value == ENOENT) hint = "a recording is made by: dynprof-bpf record --pid PID";
    if (value == EACCES) hint = "it belongs to the user who recorded it: try sudo";
    errno = value;
    return errno_error(fmt::format("cannot read the recording {}", path), std::move(hint));
  }
  return file;
}

Result<ChunkFile> ChunkFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd file, open_for_reading(path));
  return from_fd(std::move(file), path);
}

Result<ChunkFile> ChunkFile::from_fd(UniqueFd file, const std::string& name) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return errno_error("cannot read the recording " + name);
  if (S_ISDIR(info.st_mode)) {
    std::string_view slash = name.ends_with('/') ? "" : "/";
    return error(fmt::format("cannot read the recording {}: it is a directory", name),
                 fmt::format("give the file in it: {}{}recording.dynprof", name, slash));
  }
  if (!S_ISREG(info.st_mode)) {
    return error(fmt::format("cannot read the recording {}: it is not a regular file", name),
                 "write its content to a file first");
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  ChunkFile result(std::move(file), size, 0);
  std::array<std::uint8_t, kFileHeaderBytes> bytes{};
  const std::size_t got = result.read_at(0, bytes);
  FileHeader header;
  switch (decode_file_header(std::span(bytes).first(got), header)) {
    case HeaderState::kGood:
      break;
    case HeaderState::kNotARecording:
      return error(fmt::format("{} is not a recording{}", name, size == 0 ? ": it is empty" : ""),
                   "recordings are called recording.dynprof");
    case HeaderState::kDamaged:
      return error(fmt::format("the header of the recording {} is damaged", name),
                   "its first 32 bytes are needed; take another copy of it");
    case HeaderState::kOlder:
      return error(fmt::format("the recording {} has format version {}, this program reads {}",
                               name, header.version, kVersion),
                   "use the dynprof-bpf that made it, or record again");
    case HeaderState::kNewer:
      return error(
          header.version > kVersion
              ? fmt::format("the recording {} has format version {}, this program reads {}", name,
                            header.version, kVersion)
              : fmt::format("the recording {} has features this program does not know "
                            "(flags {:#x})",
                            name, header.flags),
          "use the dynprof-bpf that made it, or a newer one");
  }
  result.at_ = header.header_bytes;
  return result;
}

std::size_t ChunkFile::read_at(std::uint64_t offset, std::span<std::uint8_t> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    ssize_t got = ::pread(file_.get(), out.data() + done, out.size() - done,
                          static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

// At least `bytes` bytes of the file from `offset` on, fewer at its end.
std::span<const std::uint8_t> ChunkFile::window(std::uint64_t offset, std::size_t bytes) {
  if (offset < window_at_ || offset + bytes > window_at_ + window_bytes_) {
    window_.resize(kWindowBytes);
    window_at_ = offset;
    window_bytes_ = read_at(offset, window_);
  }
  const auto skip = static_cast<std::size_t>(offset - window_at_);
  return std::span<const std::uint8_t>(window_).subspan(skip, window_bytes_ - skip);
}

std::optional<ChunkHeader> ChunkFile::header_at(std::uint64_t offset) {
  if (offset > size_ || size_ - offset < kChunkHeaderBytes) return std::nullopt;
  return decode_chunk_header(window(offset, kChunkHeaderBytes));
}

// The next place at or after `from` with an intact header.
std::optional<std::uint64_t> ChunkFile::find_header(std::uint64_t from) {
  while (from < size_ && size_ - from >= kChunkHeaderBytes) {
    std::span<const std::uint8_t> bytes = window(from, kChunkHeaderBytes);
    if (bytes.size() < kChunkHeaderBytes) return std::nullopt;  // read error, or cut by someone
    const auto last = bytes.end() - (kChunkHeaderBytes - 1);
    auto at = std::find(bytes.begin(), last, kChunkMagic[0]);
    from += static_cast<std::uint64_t>(at - bytes.begin());
    if (at == last) continue;
    if (header_at(from)) return from;
    ++from;
  }
  return std::nullopt;
}

std::optional<Chunk> ChunkFile::next(Damage& damage) {
  const std::uint64_t expected = at_;
  while (at_ < size_) {
    std::optional<std::uint64_t> found = find_header(at_);
    if (!found) break;
    const ChunkHeader header = *header_at(*found);
    const std::uint64_t payload = *found + kChunkHeaderBytes;
    if (header.stored_bytes > size_ - payload) {
      // Torn, or its end was cut out of the file: look for what may follow.
      at_ = payload;
      continue;
    }
    damage.skipped_bytes += *found - expected;
    at_ = payload + header.stored_bytes;
    return Chunk{header, payload};
  }
  if (expected < size_) damage.torn_bytes += size_ - expected;
  at_ = size_;
  return std::nullopt;
}

void ChunkFile::stop(Damage& damage) {
  if (at_ < size_) damage.bytes_after_end += size_ - at_;
  at_ = size_;
}

std::optional<std::span<const std::uint8_t>> ChunkFile::load(const Chunk& chunk, Damage& damage) {
  const ChunkHeader& header = chunk.header;
  if (stored_.size() < header.stored_bytes) stored_.resize(header.stored_bytes);
  const std::span<std::uint8_t> stored = std::span(stored_).first(header.stored_bytes);
  if (read_at(chunk.offset, stored) < stored.size()) {
    ++damage.unreadable[header.kind];
    return std::nullopt;
  }
  if (!checksum_matches(stored, header.payload_crc)) {
    ++damage.bad_checksum[header.kind];
    return std::nullopt;
  }
  std::span<const std::uint8_t> raw;
  if (!decoder_.decode(header, stored, raw)) {
    ++damage.malformed[header.kind];
    return std::nullopt;
  }
  return raw;
}

}  // namespace dynprof::recording
