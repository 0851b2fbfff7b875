#include "user/target/thread_run_time.h"

#include <fmt/format.h>

#include <fstream>

namespace dynprof {

std::optional<std::uint64_t> thread_run_time_ns(pid_t pid, pid_t tid) {
  std::uint64_t ran = 0;
  if (!(std::ifstream(fmt::format("/proc/{}/task/{}/schedstat", pid, tid)) >> ran))
    return std::nullopt;
  return ran;
}

}  // namespace dynprof
