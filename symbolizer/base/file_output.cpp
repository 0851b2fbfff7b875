#include "symbolizer/base/file_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "symbolizer/base/write_all.h"

namespace dynprof {

Result<std::unique_ptr<OutputFile>> OutputFile::create(int directory, const std::string& name,
                                                       const std::string& shown) {
  std::unique_ptr<OutputFile> file(new OutputFile);
  file->shown_ = shown.empty() ? name : shown;
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  file->fd_.reset(::openat(directory, name.c_str(), flags, 0600));
  if (!file->fd_) {
    const char* hint = errno == EEXIST ? "nothing is overwritten: choose another path" : "";
    return errno_error("cannot create " + file->shown_, hint);
  }
  struct stat status {};
  if (::fstat(file->fd_.get(), &status) == 0) {
    file->directory_ = directory;
    file->name_ = name;
    file->device_ = status.st_dev;
    file->inode_ = status.st_ino;
    file->ours_ = true;
    file->is_new_ = true;
  }
  return file;
}

Result<std::unique_ptr<OutputFile>> OutputFile::create(const std::string& path) {
  return create(AT_FDCWD, path);
}

std::unique_ptr<OutputFile> OutputFile::adopt(UniqueFd fd, std::string shown, bool is_new) {
  std::unique_ptr<OutputFile> file(new OutputFile);
  file->is_new_ = is_new;
  file->fd_ = std::move(fd);
  file->shown_ = std::move(shown);
  return file;
}

OutputFile::~OutputFile() { remove(); }

// Through the page cache, and from an aligned position behind kCachedBytes on past it.
bool OutputFile::take(std::string_view bytes) {
  if (is_new_ && !asked_ && cached_ + bytes.size() >= kCachedBytes) {
    const std::size_t unaligned = cached_ % DirectBlock::kAlignment;
    const std::size_t first =
        std::min(bytes.size(), unaligned == 0 ? 0 : DirectBlock::kAlignment - unaligned);
    if (!write_all(fd_.get(), bytes.substr(0, first))) return false;
    cached_ += first;
    bytes.remove_prefix(first);
    if (cached_ % DirectBlock::kAlignment == 0) {
      asked_ = true;
      direct_ = DirectBlock::begin(fd_.get());
    }
  }
  if (direct_) return direct_->write(bytes);
  cached_ += bytes.size();
  return write_all(fd_.get(), bytes);
}

void OutputFile::write(std::string_view bytes) {
  if (error_ || take(bytes)) return;
  error_ = errno != 0 ? errno_error("cannot write " + shown_)
                      : error("cannot write " + shown_ + ": nothing was taken");
}

Result<void> OutputFile::finish() {
  if (direct_ && !error_ && !direct_->finish()) error_ = errno_error("cannot write " + shown_);
  // Some file systems report a full disk only when the file is closed.
  if (fd_ && ::close(fd_.release()) != 0 && !error_) error_ = errno_error("cannot write " + shown_);
  if (error_) {
    remove();
    return *error_;
  }
  ours_ = false;
  return {};
}

// Only the file made here: if someone has put another one under its name, that one stays.
void OutputFile::remove() {
  if (!std::exchange(ours_, false)) return;
  struct stat status {};
  if (::fstatat(directory_, name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      status.st_dev == device_ && status.st_ino == inode_) {
    ::unlinkat(directory_, name_.c_str(), 0);
  }
}

}  // namespace dynprof
