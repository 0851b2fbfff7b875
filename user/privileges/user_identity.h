// The user who creates files and processes untrusted data: the user who called sudo, or, for root
// without sudo, the account "nobody".
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

namespace dynprof {

struct UserIdentity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary ones, as a login of that user has them
};

// SUDO_UID and SUDO_GID with that user's groups, if this process is root and they name another user.
std::optional<UserIdentity> user_behind_sudo();

// Uid and gid 65534 and no groups.
UserIdentity unprivileged_user();

}  // namespace dynprof
