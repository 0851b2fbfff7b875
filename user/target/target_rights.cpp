#include "user/target/target_rights.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "user/target/process.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kOpening = (1ULL << CAP_DAC_OVERRIDE) | (1ULL << CAP_DAC_READ_SEARCH);

std::vector<std::uint64_t> numbers_in(std::string_view text, int base = 10) {
  std::vector<std::uint64_t> numbers;
  while (!text.empty()) {
    std::uint64_t number = 0;
    auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (failure == std::errc()) numbers.push_back(number);
    const auto used = static_cast<std::size_t>(end - text.data());
    text.remove_prefix(used == 0 ? 1 : used);
  }
  return numbers;
}

bool in_our_user_namespace(pid_t pid) {
  struct stat ours {
  }, theirs{};
  return ::stat("/proc/self/ns/user", &ours) == 0 &&
         ::stat(fmt::format("/proc/{}/ns/user", pid).c_str(), &theirs) == 0 &&
         ours.st_ino == theirs.st_ino;
}

// All of it for the calling thread alone: the C library's functions are for all threads.
Result<void> take_on(const TargetRights& rights) {
  const auto ours = static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1)));
  const bool grouped = ::syscall(SYS_setgroups, rights.groups.size(), rights.groups.data()) == 0;
  ::setfsgid(rights.gid);
  ::setfsuid(rights.uid);
  const auto uid = static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1)));
  const auto gid = static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1)));
  // Without the right to change them they may be the same already.
  if (uid != rights.uid || ((gid != rights.gid || !grouped) && ours != rights.uid))
    return error(fmt::format("cannot be opened with the rights of uid {}", rights.uid));
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  if (::syscall(SYS_capget, &header, sets)) return errno_error("capget");
  const auto away = static_cast<std::uint32_t>(kOpening & ~rights.capabilities);
  sets[0].effective &= ~away;
  sets[0].effective |= static_cast<std::uint32_t>(rights.capabilities) & sets[0].permitted;
  if (::syscall(SYS_capset, &header, sets)) return errno_error("capset");
  return {};
}

}  // namespace

Result<TargetRights> TargetRights::of(pid_t pid) {
  TargetRights rights;
  ASSIGN_OR_RETURN(const std::string uids, read_status_field(pid, "Uid"));
  ASSIGN_OR_RETURN(const std::string gids, read_status_field(pid, "Gid"));
  ASSIGN_OR_RETURN(const std::string groups, read_status_field(pid, "Groups"));
  ASSIGN_OR_RETURN(const std::string effective, read_status_field(pid, "CapEff"));
  const auto uid = numbers_in(uids), gid = numbers_in(gids), caps = numbers_in(effective, 16);
  // Real, effective, saved, file system.
  if (uid.size() != 4 || gid.size() != 4 || caps.size() != 1)
    return error(fmt::format("/proc/{}/status is not as expected", pid));
  rights.uid = static_cast<uid_t>(uid[3]);
  rights.gid = static_cast<gid_t>(gid[3]);
  for (std::uint64_t group : numbers_in(groups)) rights.groups.push_back(static_cast<gid_t>(group));
  if (in_our_user_namespace(pid)) rights.capabilities = caps[0] & kOpening;
  return rights;
}

Result<UniqueFd> open_with(const TargetRights& rights,
                           const std::function<Result<UniqueFd>()>& open) {
  // The change of uid would leave the whole process without core dumps and closed to its own user.
  const int dumpable = ::prctl(PR_GET_DUMPABLE);
  std::optional<Result<UniqueFd>> result;
  try {
    std::thread([&] {
      if (auto taken = take_on(rights); !taken) {
        result.emplace(std::move(taken).error());
      } else {
        result.emplace(open());
      }
    }).join();
  } catch (const std::system_error&) {
    return error("cannot be opened: no thread could be started");
  }
  if (dumpable == 1) ::prctl(PR_SET_DUMPABLE, 1);
  return *std::move(result);
}

}  // namespace dynprof
