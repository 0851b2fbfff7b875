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

// A user id of the namespace that a /proc/PID/uid_map is of, as ours.
std::optional<uid_t> map_user(std::string_view uid_map, uid_t inner);

inline constexpr int kServedByOther = EREMOTE;

// Fails when what `file` (O_PATH is enough) stands for lies on a FUSE file system whose owner is neither
// root nor who runs us, or nobody knows whose it is. `pid`: whose mounts it is looked for in, 0: ours. A
// refusal is counted (read_losses.h); its errno is kServedByOther.
Result<void> check_server(int file, pid_t pid);

}  // namespace dynprof
