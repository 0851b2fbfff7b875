// For a few lines, files are opened and created with the rights of another user: access is
// checked for that user, and new files belong to it. Only the calling thread changes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "symbolizer/base/result.h"
#include "user/privileges/user_identity.h"

namespace dynprof {

class ActingAs {
 public:
  // Without a user nothing changes. Fails where the rights to change users are missing.
  static Result<ActingAs> user(const std::optional<UserIdentity>& user);
  ActingAs(ActingAs&& other) noexcept;
  ActingAs& operator=(ActingAs&&) = delete;
  ~ActingAs();

 private:
  ActingAs() = default;
  bool active_ = false;
  std::vector<gid_t> groups_;  // ours
};

}  // namespace dynprof
