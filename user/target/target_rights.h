// The rights with which a process opens files. We may read what the target's user may not; where what we
// read is handed on (files it generated, names it chose), the kernel decides by the target's rights.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

struct TargetRights {
  uid_t uid = 0;  // its file system uid and gid
  gid_t gid = 0;
  std::vector<gid_t> groups;
  // Those capabilities that open files of others; 0 in another user namespace than ours.
  std::uint64_t capabilities = 0;

  static Result<TargetRights> of(pid_t pid);
};

// What `open` returns when it is called with these rights. It runs on a thread of its own, which ends
// with it, so that no other thread has them.
Result<UniqueFd> open_with(const TargetRights& rights,
                           const std::function<Result<UniqueFd>()>& open);

}  // namespace dynprof
