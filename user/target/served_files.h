// Files that a user's own program serves (FUSE): opening or reading one may never return. Looked for without
// asking the file system anything: statx with what the kernel knows, and the target's list of mounts.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string_view>

#include "symbolizer/base/result.h"

namespace dynprof {

// A line of /proc/PID/mountinfo.
struct MountLine {
  std::uint64_t id = 0;
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  bool fuse = false;
  std::optional<uid_t> owner;  // of a FUSE mount, as its own user namespace says it
};
std::optional<MountLine> parse_mount(std::string_view line);

// A user id of the namespace described by a /proc/PID/uid_map, as a user id of this process's namespace.
std::optional<uid_t> map_user(std::string_view uid_map, uid_t inner);

inline constexpr int kServedByOther = EREMOTE;

// Fails when `file` (O_PATH is enough) is on a FUSE file system whose owner is unknown, or neither root nor
// the user who runs this program. `pid`: the process whose mounts are searched, 0: this one. A refusal is
// counted (read_losses.h); its errno is kServedByOther.
Result<void> check_server(int file, pid_t pid);

}  // namespace dynprof
