#include "user/cli/output_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

#include "symbolizer/base/text.h"
#include "user/privileges/acting_as.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kWantedFree = 64 << 20;

}  // namespace

Result<OutputDirectory> OutputDirectory::create_at(int parent, const std::string& name,
                                                   const std::string& shown) {
  std::string visible = escape_terminal(shown);
  const auto user = user_behind_sudo();
  ASSIGN_OR_RETURN(const ActingAs acting, ActingAs::user(user));
  if (mkdirat(parent, name.c_str(), 0700)) {
    std::string hint;
    if (errno == EACCES || errno == EROFS || errno == ENOSPC)
      hint = "choose a place you may write to with -o DIR";
    if (errno == EACCES && user)
      hint = fmt::format(
          "files are created as uid {} (SUDO_UID): use -o DIR with a place that user may write to",
          user->uid);
    if (errno == EEXIST) hint = "choose another with -o DIR: a recording is never overwritten";
    if (errno == ENOENT) hint = "create its parent directory first";
    return errno_error(fmt::format("cannot create directory {}", visible), hint);
  }
  UniqueFd fd(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return errno_error(fmt::format("cannot open directory {}", visible));
  return OutputDirectory(std::move(fd), shown);
}

Result<OutputDirectory> OutputDirectory::create(const std::string& path) {
  return create_at(AT_FDCWD, path, path);
}

Result<OutputDirectory> OutputDirectory::subdirectory(const std::string& name) const {
  return create_at(fd_.get(), name, path_ + "/" + name);
}

Result<std::unique_ptr<OutputFile>> OutputDirectory::file(const std::string& name) const {
  return OutputFile::create(fd_.get(), name, path_ + "/" + name);
}

Result<UniqueFd> OutputDirectory::plain_file(const std::string& name) const {
  ASSIGN_OR_RETURN(const ActingAs acting, ActingAs::user(user_behind_sudo()));
  UniqueFd fd(
      openat(fd_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return errno_error(fmt::format("cannot create {}/{}", escape_terminal(path_), name));
  return fd;
}

Result<UniqueFd> OutputDirectory::readable(const std::string& name) const {
  UniqueFd fd(openat(fd_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd)
    return errno_error(fmt::format("cannot read {}/{}", escape_terminal(path_), name),
                       "it was removed while it was written: record again");
  return fd;
}

bool OutputDirectory::disk_is_nearly_full() const {
  struct statvfs disk {};
  if (fstatvfs(fd_.get(), &disk) != 0 || disk.f_blocks == 0) return false;
  const std::uint64_t block = disk.f_frsize;
  return disk.f_bavail * block < std::min(kWantedFree, disk.f_blocks * block / 20);
}

}  // namespace dynprof
