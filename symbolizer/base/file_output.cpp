#include "symbolizer/base/file_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

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
  }
  return file;
}

Result<std::unique_ptr<OutputFile>> OutputFile::create(const std::string& path) {
  return create(AT_FDCWD, path);
}

std::unique_ptr<OutputFile> OutputFile::adopt(UniqueFd fd, std::string shown) {
  std::unique_ptr<OutputFile> file(new OutputFile);
  file->fd_ = std::move(fd);
  file->shown_ = std::move(shown);
  return file;
}

OutputFile::~OutputFile() { remove(); }

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty() && !error_) {
    ssize_t count = ::write(fd_.get(), bytes.data(), bytes.size());
    if (count > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (count < 0 && errno != EINTR) {
      error_ = errno_error("cannot write " + shown_);
    } else if (count == 0) {
      error_ = error("cannot write " + shown_ + ": nothing was taken");
    }
  }
}

Result<void> OutputFile::finish() {
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
