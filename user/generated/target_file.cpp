#include "user/generated/target_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "user/generated/names.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

constexpr std::size_t kBlock = 64 * 1024;

// O_PATH opens anything without side effects, a FIFO or a device too, and a link as itself.
UniqueFd open_path(int root, const char* path) {
  open_how how{};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(syscall(SYS_openat2, root, path, &how, sizeof how)));
}

std::string check_kind(const struct stat& status, uid_t uid) {
  if (S_ISLNK(status.st_mode)) return "is a symbolic link, which is not followed";
  if (!S_ISREG(status.st_mode)) return "is no regular file";
  bool own = status.st_uid == uid;
  bool public_of_root = status.st_uid == 0 && (status.st_mode & S_IROTH) != 0;
  if (!own && !public_of_root) {
    return fmt::format("belongs to uid {}, the target is uid {}", status.st_uid, uid);
  }
  return "";
}

}  // namespace

TargetFiles::TargetFiles(pid_t pid)
    : root_(::open(fmt::format("/proc/{}/root", pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  if (auto uid = process_uid(pid)) uid_ = *uid;
}

Result<UniqueFd> TargetFiles::open(const std::string& path) {
  if (!root_ || !uid_) return error("the target's files cannot be reached");
  if (path.empty() || path[0] != '/') return error("is not an absolute path");
  if (path.size() >= PATH_MAX || path.find('\0') != std::string::npos) return error("is no path");
  if (!source_extension(path)) return error("is not named like a source file");
  UniqueFd found = open_path(root_.get(), path.c_str());
  if (!found) return errno_error("cannot be opened");
  struct stat status {};
  if (fstat(found.get(), &status)) return errno_error("cannot be examined");
  if (std::string problem = check_kind(status, *uid_); !problem.empty()) return error(problem);
  // The very file that was examined, whatever the path leads to by now.
  UniqueFd readable(::open(fmt::format("/proc/self/fd/{}", found.get()).c_str(),
                           O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!readable) return errno_error("cannot be opened");
  return readable;
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
