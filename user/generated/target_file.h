// Source files the target names, read through /proc/PID/root. A path comes from the target's memory
// and what lies there may change under us, so: looked up inside the target's root, the file itself
// no link, regular, of a kind torch generates, owned by its user, or root's and readable for all, and
// opened with the target's own rights: what it could not read without us, it does not get to see in
// our output. At most a given number of bytes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/target/target_rights.h"

namespace dynprof {

struct TargetFileText {
  std::string content;
  bool truncated = false;
  std::string problem;  // of a file that was read all the same: "is 1073741824 bytes long"
};

class TargetFiles {
 public:
  explicit TargetFiles(pid_t pid);

  // An error says why not, without the path.
  Result<TargetFileText> read(const std::string& path, std::size_t max_bytes);

 private:
  Result<UniqueFd> open(const std::string& path);

  pid_t pid_;
  UniqueFd root_;
  std::optional<TargetRights> rights_;
};

}  // namespace dynprof
