#include "user/cli/output_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

std::optional<unsigned> id_from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  char* end = nullptr;
  unsigned long value = std::strtoul(text, &end, 10);
  if (*end || value > 0xfffffffeUL) return std::nullopt;
  return static_cast<unsigned>(value);
}

}  // namespace

std::optional<FileOwner> owner_behind_sudo() {
  if (geteuid() != 0) return std::nullopt;
  auto uid = id_from_environment("SUDO_UID");
  auto gid = id_from_environment("SUDO_GID");
  if (!uid || !gid || *uid == 0) return std::nullopt;
  return FileOwner{*uid, *gid};
}

Result<OutputDirectory> OutputDirectory::create_at(int parent, const std::string& name,
                                                   const std::string& shown) {
  std::string visible = escape_terminal(shown);
  if (mkdirat(parent, name.c_str(), 0700)) {
    std::string hint;
    if (errno == EEXIST) hint = "choose another with -o DIR: a recording is never overwritten";
    if (errno == ENOENT) hint = "create the directory it lies in first";
    return errno_error(fmt::format("cannot create directory {}", visible), hint);
  }
  UniqueFd fd(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return errno_error(fmt::format("cannot open directory {}", visible));
  if (auto owner = owner_behind_sudo(); owner && fchown(fd.get(), owner->uid, owner->gid))
    return errno_error(fmt::format("cannot give directory {} to uid {}", visible, owner->uid));
  return OutputDirectory(std::move(fd), shown);
}

Result<OutputDirectory> OutputDirectory::create(const std::string& path) {
  return create_at(AT_FDCWD, path, path);
}

Result<OutputDirectory> OutputDirectory::subdirectory(const std::string& name) const {
  return create_at(fd_.get(), name, path_ + "/" + name);
}

Result<std::unique_ptr<OutputFile>> OutputDirectory::file(const std::string& name) const {
  return OutputFile::create(fd_.get(), name, owner_behind_sudo(), path_ + "/" + name);
}

Result<UniqueFd> OutputDirectory::plain_file(const std::string& name) const {
  UniqueFd fd(
      openat(fd_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return errno_error(fmt::format("cannot create {}/{}", escape_terminal(path_), name));
  if (auto owner = owner_behind_sudo(); owner && fchown(fd.get(), owner->uid, owner->gid))
    return errno_error(
        fmt::format("cannot give {}/{} to uid {}", escape_terminal(path_), name, owner->uid));
  return fd;
}

}  // namespace dynprof
