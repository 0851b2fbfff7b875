// Files for a process to open: it may have another user and another root than we do.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/inject/folder_guard.h"

namespace dynprof {

// The path by which the process finds the very file that is at `path` for us; nullopt where it has
// none, may not read it, or may not execute it (a mount with noexec).
std::optional<std::string> path_for_target(pid_t pid, const std::string& path);

// A new folder below the root of the process, in /tmp or where else programs may be. It belongs to this
// program's user, everybody may read it, and it is removed at the end with what was put into it; if this program is killed
// too, by another process (folder_guard.h).
class TargetFolder {
 public:
  static Result<TargetFolder> create(pid_t pid);
  TargetFolder(TargetFolder&& other) noexcept;
  TargetFolder& operator=(TargetFolder&&) = delete;
  ~TargetFolder();

  // As the process names it.
  std::string path_of(std::string_view name) const;
  // As this program names it while the folder is there.
  std::string own_path_of(std::string_view name) const;
  Result<void> put_text(const std::string& name, std::string_view text);
  Result<void> put_copy(const std::string& name, const std::string& source);
  // An empty file that the user of the process may write to, open for reading.
  Result<UniqueFd> put_empty(const std::string& name);

 private:
  TargetFolder(pid_t pid, UniqueFd parent, std::string path, std::unique_ptr<FolderGuard> guard);
  Result<UniqueFd> create_file(const std::string& name, int flags);

  pid_t pid_;
  UniqueFd parent_, folder_;
  std::string path_;
  std::vector<std::string> names_;
  std::unique_ptr<FolderGuard> guard_;  // may be null
};

}  // namespace dynprof
