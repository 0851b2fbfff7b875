#include "user/inject/target_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "user/target/awaiting_target.h"
#include "user/target/process.h"
#include "user/target/safe_open.h"
#include "user/target/served_files.h"
#include "user/target/target_rights.h"

namespace dynprof {
namespace {

// In this order: the first one that lets programs be executed.
constexpr std::array kParents = {"/tmp", "/var/tmp", "/dev/shm", "/run"};
constexpr off_t kMaxCopy = 64 << 20;

bool executes(int file) {
  const AwaitingTarget awaiting(0);
  struct statvfs mount {};
  return ::fstatvfs(file, &mount) == 0 && (mount.f_flag & ST_NOEXEC) == 0;
}

std::string random_name() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
  return fmt::format("dynprof-bpf-{:016x}", number);
}

}  // namespace

std::optional<std::string> path_for_target(pid_t pid, const std::string& path) {
  struct stat ours {
  }, theirs{};
  if (path.empty() || path[0] != '/' || ::stat(path.c_str(), &ours) != 0) return std::nullopt;
  const auto rights = TargetRights::of(pid);
  if (!rights) return std::nullopt;
  const UniqueFd root = open_root_of(pid);
  if (!check_server_below(root.get(), path, pid)) return std::nullopt;
  const auto file = open_with(*rights, [&] { return open_below(root.get(), path, pid); });
  if (!file || ::fstat(file->get(), &theirs) != 0 || theirs.st_ino != ours.st_ino ||
      theirs.st_dev != ours.st_dev || !executes(file->get()))
    return std::nullopt;
  return path;
}

Result<TargetFolder> TargetFolder::create(pid_t pid) {
  const UniqueFd root = open_root_of(pid);
  if (!root) return errno_error(fmt::format("cannot open the root of process {}", pid));
  for (const char* place : kParents) {
    auto parent = look_up_below(root.get(), place);
    if (!parent || !check_server(parent->get(), pid) || !executes(parent->get())) continue;
    const std::string name = random_name();
    auto guard = FolderGuard::start(parent->get(), name);
    const AwaitingTarget awaiting(pid);
    if (::mkdirat(parent->get(), name.c_str(), 0700) != 0) continue;
    TargetFolder created(pid, std::move(*parent), fmt::format("{}/{}", place, name),
                         std::move(guard));
    created.folder_.reset(::openat(created.parent_.get(), name.c_str(),
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    // Another user could have put a folder of their own in its place.
    if (!created.folder_ || ::fstat(created.folder_.get(), &status) != 0 ||
        status.st_uid != ::geteuid() || ::fchmod(created.folder_.get(), 0755) != 0)
      continue;
    return created;
  }
  return error(fmt::format("process {} sees no temporary directory that programs may be in", pid),
               "mount /tmp or /dev/shm without noexec");
}

TargetFolder::TargetFolder(pid_t pid, UniqueFd parent, std::string path,
                           std::unique_ptr<FolderGuard> guard)
    : pid_(pid), parent_(std::move(parent)), path_(std::move(path)), guard_(std::move(guard)) {}

TargetFolder::TargetFolder(TargetFolder&& other) noexcept
    : pid_(other.pid_),
      parent_(std::move(other.parent_)),
      folder_(std::move(other.folder_)),
      path_(std::move(other.path_)),
      names_(std::exchange(other.names_, {})),
      guard_(std::move(other.guard_)) {}

TargetFolder::~TargetFolder() {
  if (!parent_) return;
  const AwaitingTarget awaiting(pid_);
  if (folder_)
    for (const std::string& name : names_) ::unlinkat(folder_.get(), name.c_str(), 0);
  ::unlinkat(parent_.get(), path_.c_str() + path_.rfind('/') + 1, AT_REMOVEDIR);
}

std::string TargetFolder::path_of(std::string_view name) const {
  return fmt::format("{}/{}", path_, name);
}

std::string TargetFolder::own_path_of(std::string_view name) const {
  return fmt::format("/proc/self/fd/{}/{}", folder_.get(), name);
}

Result<UniqueFd> TargetFolder::create_file(const std::string& name, int flags) {
  UniqueFd file(::openat(folder_.get(), name.c_str(),
                         flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return errno_error(fmt::format("cannot create {}", path_of(name)));
  names_.push_back(name);
  return file;
}

Result<void> TargetFolder::put_text(const std::string& name, std::string_view text) {
  const AwaitingTarget awaiting(pid_);
  ASSIGN_OR_RETURN(const UniqueFd file, create_file(name, O_WRONLY));
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fchmod(file.get(), 0444) != 0)
    return errno_error(fmt::format("cannot write {}", path_of(name)));
  return {};
}

Result<void> TargetFolder::put_copy(const std::string& name, const std::string& source) {
  const AwaitingTarget awaiting(pid_);
  const UniqueFd from(::open(source.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!from || ::fstat(from.get(), &status) != 0)
    return errno_error(fmt::format("cannot read {}", source));
  if (status.st_size > kMaxCopy) return error(fmt::format("{} is too large", source));
  ASSIGN_OR_RETURN(const UniqueFd to, create_file(name, O_WRONLY));
  for (off_t left = status.st_size; left > 0;) {
    const ssize_t done = ::sendfile(to.get(), from.get(), nullptr, static_cast<std::size_t>(left));
    if (done <= 0) return errno_error(fmt::format("cannot write {}", path_of(name)));
    left -= done;
  }
  if (::fchmod(to.get(), 0555) != 0)
    return errno_error(fmt::format("cannot write {}", path_of(name)));
  return {};
}

Result<UniqueFd> TargetFolder::put_empty(const std::string& name) {
  const AwaitingTarget awaiting(pid_);
  ASSIGN_OR_RETURN(const TargetRights rights, TargetRights::of(pid_));
  ASSIGN_OR_RETURN(UniqueFd file, create_file(name, O_RDWR));
  if (rights.uid != ::geteuid() &&
      (::fchown(file.get(), rights.uid, rights.gid) != 0 || ::fchmod(file.get(), 0600) != 0))
    return errno_error(fmt::format("cannot give {} to uid {}", path_of(name), rights.uid));
  return file;
}

}  // namespace dynprof
