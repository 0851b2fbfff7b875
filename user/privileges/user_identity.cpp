#include "user/privileges/user_identity.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace dynprof {
namespace {

constexpr unsigned kNobody = 65534;
constexpr int kMaxGroups = 65536;  // NGROUPS_MAX

std::optional<unsigned> id_from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (!text || *text < '0' || *text > '9') return std::nullopt;
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  if (*end || value > 0xfffffffeUL) return std::nullopt;
  return static_cast<unsigned>(value);
}

// Several names may have one uid, each with groups of its own: the one sudo was called by, if it says.
std::string name_of(uid_t uid) {
  const char* said = std::getenv("SUDO_USER");
  if (said && *said) {
    const passwd* entry = ::getpwnam(said);
    if (entry && entry->pw_uid == uid) return said;
  }
  const passwd* entry = ::getpwuid(uid);
  return entry ? entry->pw_name : "";
}

std::vector<gid_t> groups_of(const std::string& name, gid_t gid) {
  if (name.empty()) return {gid};
  int count = 64;
  std::vector<gid_t> groups;
  while (count <= kMaxGroups) {
    groups.resize(static_cast<std::size_t>(count));
    const int room = count;
    if (::getgrouplist(name.c_str(), gid, groups.data(), &count) >= 0) {
      groups.resize(static_cast<std::size_t>(count));
      return groups;
    }
    if (count <= room) count = room * 2;
  }
  return {gid};
}

}  // namespace

std::optional<UserIdentity> user_behind_sudo() {
  if (::geteuid() != 0) return std::nullopt;
  const auto uid = id_from_environment("SUDO_UID");
  const auto gid = id_from_environment("SUDO_GID");
  if (!uid || !gid || *uid == 0) return std::nullopt;
  return UserIdentity{*uid, *gid, groups_of(name_of(*uid), *gid)};
}

UserIdentity unprivileged_user() { return {kNobody, kNobody, {}}; }

}  // namespace dynprof
