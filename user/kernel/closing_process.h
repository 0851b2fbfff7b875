// A process that closes descriptors of probes, also when this program is killed. The kernel removes a uprobe when the
// last descriptor of it is closed, and reads the target's page for that. In a task with a fatal signal that read is
// interrupted, and the kernel gives up ("failed to unregister, leaking uprobe" in its log, seen on Linux 6.18): the
// breakpoint would stay in the target. So another process closes them. It shares the table of descriptors
// (CLONE_FILES): if this program is killed, nothing is closed before the other process ends too, without a signal.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

// The process has no capability, is in a session of its own, and neither its name nor the first word of its command
// line is that of this program, so SIGKILL to a process group, or by name, does not end both. With root's rights it also
// leaves the control group, for the root group. For one thread.
class ClosingProcess {
 public:
  // Early: it is a copy of this program's memory as it is now.
  static Result<std::unique_ptr<ClosingProcess>> start();
  // Waits, then ends it. Other descriptors stay open.
  ~ClosingProcess();
  ClosingProcess(const ClosingProcess&) = delete;
  ClosingProcess& operator=(const ClosingProcess&) = delete;

  // Closes these at the same time, after those of earlier calls; the kernel takes a tenth of a second for a uprobe.
  // Does not wait for that.
  void close(std::vector<UniqueFd> descriptors);
  // Until all are closed. False, now and from then on: they are not after 30 s, or the process was killed. What is
  // open still is closed when that can be done, or when this program ends.
  bool wait();

  pid_t pid() const { return pid_; }

 private:
  struct Channel {
    UniqueFd program;       // a pidfd of this program
    UniqueFd ours, theirs;  // a socket pair
  };
  ClosingProcess(Channel channel, UniqueFd process, pid_t pid);
  static void serve(const Channel& channel);

  // The process uses these by their numbers: they stay open as long as it lives.
  Channel channel_;
  UniqueFd process_;  // a pidfd of it
  pid_t pid_;
  bool answers_ = true;
};

}  // namespace dynprof
