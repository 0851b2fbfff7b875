#include "symbolizer/recording/chunk_sink.h"

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

#include "symbolizer/base/write_all.h"

namespace dynprof::recording {

void ChunkSink::write_file_header() {
  if (take(encode_file_header(FileHeader{}))) size_ = kFileHeaderBytes;
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
  if (!take(buffer_.view())) return false;
  size_ += buffer_.size();
  ++sequence_;
  return true;
}

bool ChunkSink::take(std::span<const std::uint8_t> bytes) {
  if (write_all(file_.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}))
    return true;
  fail(errno != 0 ? errno : ENOSPC);
  return false;
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
