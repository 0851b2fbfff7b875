// A process that outlives this program, for what has to be undone if the program is killed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {

// It shares the table of descriptors (CLONE_FILES): if this program is killed, nothing is closed before this process ends
// too. It has no capability, is in a session of its own, and neither its name nor the first word of its command line is
// that of this program, so SIGKILL to a process group, or by name, does not end both. With root's rights it also leaves
// the control group, for the root group.
class OutlivingProcess {
 public:
  // Runs in a copy of a program with threads: it takes no memory and no lock. `program` is readable once all threads of
  // this program are gone, which is after they let go of its descriptors. The process ends when this returns.
  using Work = std::function<void(int program)>;

  // `name`: at most 15 bytes. Null: errno says why.
  static std::unique_ptr<OutlivingProcess> start(const char* name, const Work& work);
  // Does not end the process, unless that polls `program`, which is closed.
  ~OutlivingProcess();
  OutlivingProcess(const OutlivingProcess&) = delete;
  OutlivingProcess& operator=(const OutlivingProcess&) = delete;

  // Kills it, and waits for its end.
  void end();

  pid_t pid() const { return pid_; }
  // A pidfd of it; -1: it ended at once.
  int descriptor() const { return process_.get(); }

 private:
  OutlivingProcess(UniqueFd program, UniqueFd process, pid_t pid);

  UniqueFd program_;  // a pidfd of this program, which the process uses by its number
  UniqueFd process_;
  pid_t pid_;
  bool ended_ = false;
};

}  // namespace dynprof
