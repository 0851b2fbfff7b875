// A process that closes descriptors of probes, also when this program is killed. The kernel removes a uprobe when the
// last descriptor of it is closed, and reads the target's page for that. In a task with a fatal signal that read is
// interrupted, and the kernel gives up ("failed to unregister, leaking uprobe" in its log, seen on Linux 6.18): the
// breakpoint would stay in the target. So another process closes them, and ends without a signal.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/kernel/outliving_process.h"

namespace dynprof {

// For one thread.
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

  pid_t pid() const { return process_->pid(); }

 private:
  ClosingProcess(UniqueFd ours, UniqueFd theirs, std::unique_ptr<OutlivingProcess> process);

  // A socket pair. The process uses its end by its number: it stays open as long as the process lives.
  UniqueFd ours_, theirs_;
  std::unique_ptr<OutlivingProcess> process_;
  bool answers_ = true;
};

}  // namespace dynprof
