#include "symbolizer/recording/chunk_sink.h"

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

namespace dynprof::recording {

void ChunkSink::write_file_header() {
  if (write_all(encode_file_header(FileHeader{}))) size_ = kFileHeaderBytes;
}

bool ChunkSink::append(ChunkKind kind, std::uint64_t first, std::uint64_t count,
                       std::span<const std::uint8_t> raw) {
  if (closed_) return false;
  DYNPROF_CHECK(raw.size() <= kMaxChunkBytes && count <= kMaxId);
  ChunkHeader header;
  header.kind = kind;
  header.first = first;
  header.count = static_cast<std::uint32_t>(count);
  header.sequence = sequence_;
  std::span<const std::uint8_t> stored = encoder_.encode(raw, header);
  // One write for the whole chunk: when we are killed it is there or torn, and at most one is torn.
  buffer_.clear();
  buffer_.bytes(encode_chunk_header(header));
  buffer_.bytes(stored);
  if (!write_all(buffer_.view())) return false;
  size_ += buffer_.size();
  ++sequence_;
  return true;
}

bool ChunkSink::write_all(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      fail(written < 0 ? errno : ENOSPC);
      return false;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

void ChunkSink::fail(int errno_value) {
  closed_ = true;
  // Not possible on a pipe, where what is torn stays torn.
  clean_ = ::ftruncate(file_.get(), static_cast<off_t>(size_)) == 0 &&
           ::lseek(file_.get(), static_cast<off_t>(size_), SEEK_SET) >= 0;
  if (error_) return;
  errno = errno_value;
  error_ = errno_error("cannot write the recording",
                       errno_value == ENOSPC || errno_value == EDQUOT || errno_value == EFBIG
                           ? "what was recorded until then is kept; choose another place with -o"
                           : "");
}

}  // namespace dynprof::recording
