#include "user/generated/target_file.h"

#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "user/generated/names.h"
#include "user/target/safe_open.h"

namespace dynprof {
namespace {

constexpr std::size_t kBlock = 64 * 1024;

std::string check_owner(const struct stat& status, uid_t uid) {
  if (S_ISLNK(status.st_mode)) return "is a symbolic link, which is not followed";
  if (!S_ISREG(status.st_mode)) return "is not a regular file";
  bool own = status.st_uid == uid;
  bool public_of_root = status.st_uid == 0 && (status.st_mode & S_IROTH) != 0;
  if (!own && !public_of_root) {
    return fmt::format("belongs to uid {}, the target is uid {}", status.st_uid, uid);
  }
  return "";
}

}  // namespace

TargetFiles::TargetFiles(pid_t pid) : pid_(pid), root_(open_root_of(pid)) {
  if (auto rights = TargetRights::of(pid)) rights_ = *std::move(rights);
}

Result<UniqueFd> TargetFiles::open(const std::string& path) {
  if (!root_ || !rights_) return error("the target's files cannot be reached");
  if (path.empty() || path[0] != '/') return error("is not an absolute path");
  if (path.size() >= PATH_MAX || path.find('\0') != std::string::npos) return error("is no path");
  if (!source_extension(path)) return error("is not named like a source file");
  TRY(check_server_below(root_.get(), path, pid_));
  return open_with(*rights_, [&]() -> Result<UniqueFd> {
    ASSIGN_OR_RETURN(const UniqueFd found, look_up_below(root_.get(), path, LastLink::kKeep));
    struct stat status {};
    if (fstat(found.get(), &status)) return errno_error("cannot be examined");
    if (std::string problem = check_owner(status, rights_->uid); !problem.empty())
      return error(problem);
    return open_found(found, pid_);
  });
}

Result<TargetFileText> TargetFiles::read(const std::string& path, std::size_t max_bytes) {
  ASSIGN_OR_RETURN(UniqueFd fd, open(path));
  TargetFileText text;
  while (text.content.size() <= max_bytes) {
    std::size_t have = text.content.size();
    text.content.resize(std::min(have + kBlock, max_bytes + 1));
    ssize_t got = ::read(fd.get(), text.content.data() + have, text.content.size() - have);
    if (got < 0 && errno != EINTR) return errno_error("cannot be read");
    text.content.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) break;
  }
  if (text.content.size() > max_bytes) {
    text.content.resize(max_bytes);
    text.truncated = true;
    struct stat status {};
    if (fstat(fd.get(), &status)) return errno_error("cannot be examined");
    text.problem = fmt::format("is {} bytes long", status.st_size);
  }
  if (text.content.find('\0') != std::string::npos) {
    return error(text.truncated ? text.problem + " and is not text" : "is not text");
  }
  return text;
}

}  // namespace dynprof
