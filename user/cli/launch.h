// Starts the command of `record -- CMD`: held back until the recording is attached, as the user behind
// sudo with all groups of that user, with the environment untouched.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

class LaunchedCommand {
 public:
  static Result<LaunchedCommand> start(const std::vector<std::string>& command);
  LaunchedCommand(LaunchedCommand&& other) noexcept;
  LaunchedCommand& operator=(LaunchedCommand&&) = delete;
  ~LaunchedCommand();

  pid_t pid() const { return pid_; }  // 0 once it was waited for
  // Lets it run. An error if the command could not be executed.
  Result<void> release();
  void terminate();
  // Its exit status as a shell gives it (128 + signal), waiting for it.
  int wait();

 private:
  LaunchedCommand(pid_t pid, UniqueFd go, UniqueFd failure)
      : pid_(pid), go_(std::move(go)), failure_(std::move(failure)) {}
  pid_t pid_ = 0;
  UniqueFd go_;       // writing a byte lets the child go on
  UniqueFd failure_;  // closed by a successful exec, else carries errno
  std::string name_;
};

}  // namespace dynprof
