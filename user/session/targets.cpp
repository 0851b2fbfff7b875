#include "user/session/targets.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dynprof {

void Targets::add(pid_t pid) {
  all_.insert(pid);
  pidfds_[pid] = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool Targets::all_ended() {
  std::erase_if(pidfds_, [](const auto& target) {
    pollfd ended = {target.second.get(), POLLIN, 0};
    return target.second.valid() && poll(&ended, 1, 0) == 1;
  });
  return !all_.empty() && pidfds_.empty();
}

}  // namespace dynprof
