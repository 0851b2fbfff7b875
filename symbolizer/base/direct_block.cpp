#include "symbolizer/base/direct_block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "symbolizer/base/write_all.h"

namespace dynprof {
namespace {

bool set_direct(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace

std::unique_ptr<DirectBlock> DirectBlock::begin(int fd) {
  std::unique_ptr<DirectBlock> direct(new DirectBlock(fd));
  // A huge page is one piece for the disk instead of 512.
  direct->block_.reset(static_cast<char*>(std::aligned_alloc(kSize, kSize)));
  if (!direct->block_ || !set_direct(fd, true)) return nullptr;
  ::madvise(direct->block_.get(), kSize, MADV_HUGEPAGE);
  return direct;
}

bool DirectBlock::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kSize - filled_);
    std::memcpy(block_.get() + filled_, bytes.data(), count);
    filled_ += count;
    bytes.remove_prefix(count);
    if (filled_ == kSize && !flush()) return false;
  }
  return true;
}

bool DirectBlock::flush() {
  std::string_view rest(block_.get(), filled_);
  filled_ = 0;
  if (direct_ && rest.size() % kAlignment == 0) {
    ssize_t count = 0;
    do {
      count = ::write(fd_, rest.data(), rest.size());
    } while (count < 0 && errno == EINTR);
    if (count > 0) rest.remove_prefix(static_cast<std::size_t>(count));
    if (rest.empty()) return true;
  }
  // The last part, a disk that is full, or a file system that took the flag and refuses what it means.
  if (direct_ && !set_direct(fd_, false)) return false;
  direct_ = false;
  return write_all(fd_, rest);
}

bool DirectBlock::finish() {
  const bool written = flush();
  const int reason = errno;
  set_direct(fd_, false);  // another process may have the same description
  errno = reason;
  return written;
}

}  // namespace dynprof
