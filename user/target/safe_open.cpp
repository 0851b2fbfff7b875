#include "user/target/safe_open.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "user/target/awaiting_target.h"
#include "user/target/served_files.h"

namespace dynprof {
namespace {

// File systems whose files are not stored but made up by the kernel, when they are read.
constexpr std::array<long, 16> kMadeUp = {
    PROC_SUPER_MAGIC, SYSFS_MAGIC,    DEBUGFS_MAGIC,      TRACEFS_MAGIC, SECURITYFS_MAGIC,
    SELINUX_MAGIC,    SMACK_MAGIC,    CGROUP_SUPER_MAGIC, BPF_FS_MAGIC,  CGROUP2_SUPER_MAGIC,
    PSTOREFS_MAGIC,   EFIVARFS_MAGIC, BINFMTFS_MAGIC,     NSFS_MAGIC,    DEVPTS_SUPER_MAGIC,
    0x62656570,  // configfs
};

}  // namespace

UniqueFd open_root_of(pid_t pid) {
  return UniqueFd(
      ::open(fmt::format("/proc/{}/root", pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

Result<UniqueFd> look_up_below(int root, const std::string& path, LastLink last_link) {
  const AwaitingTarget awaiting(0);
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  if (last_link == LastLink::kKeep) how.flags |= O_NOFOLLOW;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  UniqueFd found(static_cast<int>(::syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
  if (!found) return errno_error("cannot be opened");
  return found;
}

Result<UniqueFd> open_found(const UniqueFd& found, pid_t pid) {
  TRY(check_server(found.get(), pid));
  const AwaitingTarget awaiting(pid);
  struct stat status {};
  struct statfs system {};
  if (::fstat(found.get(), &status) != 0 || ::fstatfs(found.get(), &system) != 0)
    return errno_error("cannot be examined");
  if (!S_ISREG(status.st_mode)) return error("is no regular file");
  if (std::find(kMadeUp.begin(), kMadeUp.end(), static_cast<long>(system.f_type)) != kMadeUp.end())
    return error("is made up by the kernel, not stored");
  // The very file that was examined, whatever its name leads to by now.
  UniqueFd file(::open(fmt::format("/proc/self/fd/{}", found.get()).c_str(),
                       O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) return errno_error("cannot be opened");
  return file;
}

Result<UniqueFd> open_below(int root, const std::string& path, pid_t pid) {
  ASSIGN_OR_RETURN(const UniqueFd found, look_up_below(root, path));
  return open_found(found, pid);
}

Result<void> check_server_below(int root, const std::string& path, pid_t pid) {
  ASSIGN_OR_RETURN(const UniqueFd found, look_up_below(root, path));
  return check_server(found.get(), pid);
}

Result<UniqueFd> open_proc_link(const std::string& path, pid_t pid) {
  const UniqueFd found(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!found) return errno_error("cannot be opened");
  return open_found(found, pid);
}

}  // namespace dynprof
