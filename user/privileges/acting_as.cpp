#include "user/privileges/acting_as.h"

#include <fmt/format.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace dynprof {
namespace {

// glibc's setgroups() changes every thread of the process; the system call changes this one.
bool set_groups(const std::vector<gid_t>& groups) {
  return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

// setfsuid() and setfsgid() report no errors: the value afterwards shows whether they worked.
bool set_fsgid(gid_t gid) {
  ::setfsgid(gid);
  return static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1))) == gid;
}
bool set_fsuid(uid_t uid) {
  ::setfsuid(uid);
  return static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))) == uid;
}

}  // namespace

Result<ActingAs> ActingAs::user(const std::optional<UserIdentity>& user) {
  ActingAs acting;
  if (!user) return acting;
  const int count = ::getgroups(0, nullptr);
  acting.groups_.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  if (count < 0 || (count > 0 && ::getgroups(count, acting.groups_.data()) != count))
    return errno_error("cannot read the groups of this process");
  acting.active_ = true;
  // The uid comes last: with it go the capabilities that concern files.
  if (!set_groups(user->groups) || !set_fsgid(user->gid) || !set_fsuid(user->uid))
    return error(fmt::format("cannot use files with the rights of uid {}", user->uid),
                 "CAP_SETUID and CAP_SETGID are needed for that; to write as root: unset SUDO_UID");
  return acting;
}

ActingAs::ActingAs(ActingAs&& other) noexcept
    : active_(std::exchange(other.active_, false)), groups_(std::move(other.groups_)) {}

ActingAs::~ActingAs() {
  if (!active_) return;
  set_fsuid(::geteuid());
  set_fsgid(::getegid());
  set_groups(groups_);
}

}  // namespace dynprof
