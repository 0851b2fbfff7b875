#include "user/unwind_tables/byte_source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "user/target/awaiting_target.h"

namespace dynprof {

Result<ByteSource> ByteSource::of_file(UniqueFd file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return errno_error("cannot be examined");
  if (!S_ISREG(status.st_mode)) return error("is not a regular file");
  ByteSource source;
  source.file_ = std::move(file);
  source.size_ = static_cast<std::uint64_t>(status.st_size);
  return source;
}

ByteSource ByteSource::of_bytes(ByteView bytes) {
  ByteSource source;
  source.bytes_ = bytes;
  source.size_ = bytes.size();
  return source;
}

bool ByteSource::read(std::uint64_t offset, std::span<std::uint8_t> into) const {
  if (!inside(offset, into.size())) return false;
  if (into.empty()) return true;
  if (budget_ != nullptr && !budget_->take(into.size())) return false;
  if (!file_) {
    std::memcpy(into.data(), bytes_.data() + offset, into.size());
    return true;
  }
  const AwaitingTarget awaiting(0);
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::pread(file_.get(), into.data() + done, into.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

std::optional<ByteBlock> ByteSource::block(std::uint64_t offset, std::uint64_t size) const {
  if (!inside(offset, size)) return std::nullopt;
  const auto count = static_cast<std::size_t>(size);
  if (!file_) return ByteBlock(bytes_.subspan(static_cast<std::size_t>(offset), count));
  auto bytes = std::make_unique_for_overwrite<std::uint8_t[]>(count);
  if (!read(offset, {bytes.get(), count})) return std::nullopt;
  return ByteBlock(std::move(bytes), count);
}

}  // namespace dynprof
