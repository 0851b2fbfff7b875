#include "user/preflight/check_target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "symbolizer/base/text.h"
#include "user/target/descendants.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxLooks = 100'000;
constexpr std::size_t kMaxNamed = 8;

// The user may have given the id that `ps` shows inside a container.
std::vector<std::string> called_so_elsewhere(pid_t pid) {
  std::vector<std::string> found;
  for (const Descendant& other : find_all_processes(kMaxLooks)) {
    const std::vector<pid_t> ids = namespace_ids(other.pid, other.pid);
    if (ids.size() > 1 && std::find(ids.begin() + 1, ids.end(), pid) != ids.end())
      found.push_back(std::to_string(other.pid));
    if (found.size() == kMaxNamed) break;
  }
  return found;
}

}  // namespace

Result<ProcessStat> check_target(pid_t pid) {
  auto stat = read_process_stat(pid);
  if (!stat) {
    if (stat.error().errno_value == ESRCH || stat.error().errno_value == ENOENT) {
      const std::vector<std::string> others = called_so_elsewhere(pid);
      if (!others.empty())
        return error(
            fmt::format("there is no process {} here; a container knows process {} by this pid",
                        pid, fmt::join(others, ", ")),
            fmt::format("sudo dynprof-bpf --pid {}", others.front()));
      return error(fmt::format("there is no process {}", pid),
                   "pgrep -af python lists the Python processes");
    }
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
