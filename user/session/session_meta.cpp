#include "user/session/session_meta.h"

#include <sys/utsname.h>

#include "user/kernel/clock.h"
#include "user/target/process.h"
#include "version.h"

namespace dynprof {

Meta describe_session(const SessionOptions& options, const SamplingEvents& events,
                      std::uint64_t start_ns, const FollowedProcess* first) {
  Meta meta;
  meta.frequency_hz = options.frequency_hz;
  meta.period_ns = events.period_ns;
  meta.start_ns = start_ns;
  meta.realtime_offset_ns = static_cast<std::int64_t>(clock_ns(CLOCK_REALTIME)) -
                            static_cast<std::int64_t>(monotonic_ns());
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
  meta.command = options.command_lines ? read_command_line(target) : read_comm(target, target);
  if (first && first->python()) {
    meta.python = first->python().runtime().version;
    meta.torch = first->torch().torch().version;
  }
  return meta;
}

}  // namespace dynprof
