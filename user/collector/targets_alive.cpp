#include "user/collector/targets_alive.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dynprof {

void TargetsAlive::add(pid_t pid) {
  any_ = true;
  pidfds_[pid] = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool TargetsAlive::all_ended() {
  std::erase_if(pidfds_, [](const auto& target) {
    pollfd ended = {target.second.get(), POLLIN, 0};
    return target.second.valid() && poll(&ended, 1, 0) == 1;
  });
  return any_ && pidfds_.empty();
}

}  // namespace dynprof
