#include "user/target/served_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string>

#include "symbolizer/base/unique_fd.h"
#include "user/privileges/user_identity.h"
#include "user/target/awaiting_target.h"
#include "user/target/read_losses.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxMountText = 4 << 20;  // some 40,000 mounts
constexpr std::size_t kMaxMapText = 64 << 10;   // the kernel has 340 lines at most

// "" when it cannot be read.
std::string read_text(const std::string& path, std::size_t limit) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 16384> part;
  while (file && text.size() < limit) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

// Up to the next `end`, which is taken off too.
std::string_view take_until(std::string_view& text, char end) {
  const std::string_view part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size();
}

struct Found {
  bool in_list = false;
  MountLine mount;
};

Found find_mount(const std::string& list, const struct statx& file) {
  Found same_device;
  std::string_view rest = list;
  while (!rest.empty()) {
    const auto mount = parse_mount(take_until(rest, '\n'));
    if (!mount) continue;
    if ((file.stx_mask & STATX_MNT_ID) != 0 && mount->id == file.stx_mnt_id) return {true, *mount};
    // Its mount may be of another namespace; where the device is the same so is the file system.
    if (mount->device_major == file.stx_dev_major && mount->device_minor == file.stx_dev_minor)
      same_device = {true, *mount};
  }
  return same_device;
}

bool trusted(uid_t owner) {
  if (owner == 0 || owner == ::getuid()) return true;
  const auto user = user_behind_sudo();
  return user && user->uid == owner;
}

Error refused(pid_t pid) {
  ReadLosses::of_program().add(ReadLoss::kFileUntrusted, pid);
  Error refusal = error("is not opened: another user serves its file system (FUSE)");
  refusal.errno_value = kServedByOther;
  return refusal;
}

}  // namespace

// "36 35 0:98 /root /mount/point rw shared:1 - fuse.name source rw,user_id=1000,..."; blanks in names are
// written as \040.
std::optional<MountLine> parse_mount(std::string_view line) {
  MountLine mount;
  if (!parse_number(take_until(line, ' '), mount.id)) return std::nullopt;
  take_until(line, ' ');
  if (!parse_number(take_until(line, ':'), mount.device_major) ||
      !parse_number(take_until(line, ' '), mount.device_minor))
    return std::nullopt;
  const std::size_t separator = line.find(" - ");
  if (separator == std::string_view::npos) return std::nullopt;
  line.remove_prefix(separator + 3);
  const std::string_view type = take_until(line, ' ');
  mount.fuse = type == "fuse" || type == "fuseblk" || type.starts_with("fuse.") ||
               type.starts_with("fuseblk.");
  take_until(line, ' ');
  while (mount.fuse && !line.empty()) {
    constexpr std::string_view kOwner = "user_id=";
    const std::string_view option = take_until(line, ',');
    uid_t owner = 0;
    if (option.starts_with(kOwner) && parse_number(option.substr(kOwner.size()), owner))
      mount.owner = owner;
  }
  return mount;
}

std::optional<uid_t> map_user(std::string_view uid_map, uid_t inner) {
  while (!uid_map.empty()) {
    std::string_view line = take_until(uid_map, '\n');
    std::array<std::uint64_t, 3> numbers{};  // inner, outer, how many
    for (std::uint64_t& number : numbers) {
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      if (!parse_number(take_until(line, ' '), number)) return std::nullopt;
    }
    if (inner >= numbers[0] && inner - numbers[0] < numbers[2])
      return static_cast<uid_t>(numbers[1] + (inner - numbers[0]));
  }
  return std::nullopt;
}

Result<void> check_server(int file, pid_t pid) {
  struct statx status {};
  if (::statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &status) !=
      0)
    return errno_error("cannot be examined");
  // FUSE on a device is mounted by root only.
  if (status.stx_dev_major != 0) return {};
  const std::string process = pid == 0 ? "self" : fmt::format("{}", pid);
  Found found =
      find_mount(read_text(fmt::format("/proc/{}/mountinfo", process), kMaxMountText), status);
  std::string uid_map_of = process;
  if (!found.in_list && pid != 0) {
    found = find_mount(read_text("/proc/self/mountinfo", kMaxMountText), status);
    uid_map_of = "self";
  }
  if (found.in_list && !found.mount.fuse) return {};
  if (!found.in_list) {
    // A mount of another namespace, or of none. The kernel answers for FUSE without asking the server,
    // unless its owner let all users in.
    const AwaitingTarget awaiting(pid);
    struct statfs system {};
    if (::fstatfs(file, &system) != 0) return errno_error("cannot be examined");
    if (system.f_type != FUSE_SUPER_MAGIC) return {};
    return refused(pid);
  }
  if (!found.mount.owner) return refused(pid);
  const auto owner = map_user(read_text(fmt::format("/proc/{}/uid_map", uid_map_of), kMaxMapText),
                              *found.mount.owner);
  if (!owner || !trusted(*owner)) return refused(pid);
  return {};
}

}  // namespace dynprof
