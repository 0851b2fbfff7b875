#include "user/session/session_meta.h"

#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <filesystem>

#include "user/target/clock.h"
#include "user/target/process.h"
#include "version.h"

namespace dynprof {
namespace {

// As /proc/PID/cmdline and /proc/PID/comm have it once a launched command has begun.
std::string command_of(const SessionOptions& options, pid_t target) {
  constexpr std::size_t kMaxCommandLine = 4096;  // as much as is read of others
  constexpr std::size_t kMaxComm = 15;           // TASK_COMM_LEN - 1
  if (!options.launched)
    return options.command_lines ? read_command_line(target) : read_comm(target, target);
  if (options.command_lines)
    return fmt::format("{}", fmt::join(options.command, " ")).substr(0, kMaxCommandLine);
  return std::filesystem::path(options.command[0]).filename().string().substr(0, kMaxComm);
}

}  // namespace

Meta describe_session(const SessionOptions& options, const SamplingEvents& events,
                      std::uint64_t start_ns, const FollowedProcess* first) {
  Meta meta;
  meta.frequency_hz = options.frequency_hz;
  meta.period_ns = events.period_ns;
  meta.start_ns = start_ns;
  meta.realtime_offset_ns = realtime_offset_ns();
  meta.event = events.name;
  meta.version = DYNPROF_VERSION;
  if (options.passive) meta.mode = kPassiveMode;
  utsname host = {};
  if (uname(&host) == 0) {
    meta.host = host.nodename;
    meta.kernel = host.release;
  }
  if (options.all) {
    meta.target_pid = -1;
    meta.command = "all processes";
  }
  if (options.targets.empty()) return meta;
  const pid_t target = options.targets[0];
  if (options.targets.size() == 1) meta.target_pid = target;
  meta.command = command_of(options, target);
  if (first && first->python()) {
    meta.python = first->python().runtime().version;
    meta.torch = first->torch().torch().version;
  }
  return meta;
}

}  // namespace dynprof
