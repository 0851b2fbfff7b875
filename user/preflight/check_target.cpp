#include "user/preflight/check_target.h"

#include <fmt/format.h>

#include "symbolizer/base/text.h"

namespace dynprof {

Result<ProcessStat> check_target(pid_t pid) {
  auto stat = read_process_stat(pid);
  if (!stat) {
    if (stat.error().errno_value == ESRCH || stat.error().errno_value == ENOENT)
      return error(fmt::format("there is no process {}", pid),
                   "pgrep -af python lists the Python processes");
    return std::move(stat).error();
  }
  std::string name = escape_terminal(stat->comm);
  if (stat->kernel_thread)
    return error(fmt::format("process {} ({}) is a kernel thread, it has no Python", pid, name),
                 "pgrep -af python lists the Python processes");
  if (stat->zombie())
    return error(
        fmt::format("process {} ({}) has ended and only waits for its parent (zombie)", pid, name),
        "pgrep -af python lists the Python processes");
  ASSIGN_OR_RETURN(pid_t leader, thread_group_of(pid));
  if (leader != pid)
    return error(fmt::format("{} is a thread of process {}", pid, leader),
                 fmt::format("sudo dynprof-bpf --pid {}", leader));
  return stat;
}

bool fault_leaves_native_names(PythonFault fault) {
  return fault == PythonFault::kUnsupported || fault == PythonFault::kBadLayout;
}

}  // namespace dynprof
