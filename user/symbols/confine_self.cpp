// What a process does to itself: see confined_process.h.
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "user/symbols/confined_process.h"

namespace dynprof {
namespace {

constexpr rlim_t kCpuSeconds = 20;
constexpr rlim_t kDataBytes = 1ULL << 30;
constexpr uid_t kNobody = 65534;

// `more`: how far the hard limit is behind, where reaching the soft one raises a signal of its
// own.
bool limit(__rlimit_resource resource, rlim_t most, rlim_t more = 0) {
  rlimit now{};
  if (::getrlimit(resource, &now) != 0) return false;
  if (now.rlim_max != RLIM_INFINITY && now.rlim_max < most + more) return true;  // less already
  const rlimit wanted{most, most + more};
  return ::setrlimit(resource, &wanted) == 0;
}

// A sanitizer's shadow takes terabytes of address space before we get here.
bool limit_memory() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#else
  return limit(RLIMIT_DATA, kDataBytes);
#endif
}

bool become_nobody() {
  if (::geteuid() != 0) return true;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
         ::setresuid(kNobody, kNobody, kNobody) == 0;
}

// Those of a program with file capabilities, too.
bool drop_all_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  return ::syscall(SYS_capset, &header, none) == 0;
}

}  // namespace

bool confine_self() {
  // The recorder's high priority is not for this process.
  (void)::setpriority(PRIO_PROCESS, 0, 10);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (!become_nobody() || !drop_all_capabilities()) return false;
  // A change of user clears it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  return limit(RLIMIT_CORE, 0) && limit(RLIMIT_FSIZE, 0) && limit(RLIMIT_NPROC, 0) &&
         limit(RLIMIT_NOFILE, 0) && limit(RLIMIT_CPU, kCpuSeconds, 1) && limit_memory();
}

}  // namespace dynprof
