#include "user/privileges/leave_root.h"

#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace dynprof {
namespace {

constexpr std::uint64_t bit(int capability) { return 1ULL << capability; }

Result<std::uint64_t> held_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  if (::syscall(SYS_capget, &header, sets) != 0) return errno_error("cannot read capabilities");
  return (std::uint64_t{sets[1].effective | sets[1].permitted} << 32) |
         (sets[0].effective | sets[0].permitted);
}

Result<void> keep_only(std::uint64_t kept) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  for (int word = 0; word < 2; word++)
    sets[word].effective = sets[word].permitted = static_cast<std::uint32_t>(kept >> (32 * word));
  if (::syscall(SYS_capset, &header, sets) != 0) return errno_error("cannot give up capabilities");
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
    return errno_error("cannot give up ambient capabilities");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return errno_error("cannot set PR_SET_NO_NEW_PRIVS");
  ASSIGN_OR_RETURN(const std::uint64_t held, held_capabilities());
  if (held & ~kept) return error(fmt::format("capabilities {:#x} are still held", held & ~kept));
  return {};
}

}  // namespace

bool can_change_user() {
  const auto held = held_capabilities();
  return held && (*held & bit(CAP_SETUID)) && (*held & bit(CAP_SETGID));
}

Result<void> become_user(const UserIdentity& user, Keep keep) {
  const bool reading = keep == Keep::kReading;
  if (reading && ::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0)
    return errno_error("cannot set PR_SET_KEEPCAPS");
  // glibc changes all threads, and with a uid that is not 0 the kernel clears their capabilities.
  if (::setgroups(user.groups.size(), user.groups.data()) != 0 ||
      ::setresgid(user.gid, user.gid, user.gid) != 0 ||
      ::setresuid(user.uid, user.uid, user.uid) != 0)
    return errno_error(fmt::format("cannot become uid {}", user.uid));
  TRY(keep_only(reading ? bit(CAP_DAC_READ_SEARCH) : 0));
  if (user.uid != 0 && ::setuid(0) == 0)
    return error(fmt::format("uid {} could become root again", user.uid));
  return {};
}

Result<void> give_up_capabilities() { return keep_only(0); }

Result<void> give_up_reading() { return keep_only(0); }

bool is_plain_root() { return ::geteuid() == 0 && !user_behind_sudo() && can_change_user(); }

Result<void> leave_root(std::string& note, Keep keep_of_plain_root) {
  if (::geteuid() != 0) return give_up_capabilities();
  if (!can_change_user()) {
    note = "CAP_SETUID or CAP_SETGID is missing: files are made as root without capabilities";
    return give_up_capabilities();
  }
  if (auto user = user_behind_sudo()) return become_user(*user);
  return become_user(unprivileged_user(), keep_of_plain_root);
}

}  // namespace dynprof
