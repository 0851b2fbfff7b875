#include "user/preflight/capabilities.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "user/target/process.h"

namespace dynprof {
namespace {

constexpr std::uint64_t bit(int capability) { return 1ULL << capability; }

struct Needed {
  int capability;
  const char* name;
  bool admin_will_do;
};

constexpr Needed kNeeded[] = {
    {CAP_BPF, "CAP_BPF (load programs)", true},
    {CAP_PERFMON, "CAP_PERFMON (sample every process)", true},
    {CAP_SYS_PTRACE, "CAP_SYS_PTRACE (read the target's memory)", false},
};

std::string read_own_status() {
  std::string text;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/status", "re"),
                                                       std::fclose);
  if (!file) return text;
  char buffer[8192];
  text.assign(buffer, std::fread(buffer, 1, sizeof buffer, file.get()));
  return text;
}

bool keep_only(std::uint64_t keep) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  if (syscall(SYS_capget, &header, sets)) return false;
  // Docker 20.10 knows neither of the two: there CAP_SYS_ADMIN stands for them.
  const std::uint64_t held = sets[0].permitted | std::uint64_t{sets[1].permitted} << 32;
  if (keep & ~held & (bit(CAP_BPF) | bit(CAP_PERFMON))) keep |= bit(CAP_SYS_ADMIN);
  for (int word = 0; word < 2; word++) {
    auto mask = static_cast<std::uint32_t>(keep >> (32 * word));
    sets[word].effective &= mask;
    sets[word].permitted &= mask;
    sets[word].inheritable = 0;
  }
  return syscall(SYS_capset, &header, sets) == 0;
}

constexpr std::uint64_t kReading = bit(CAP_SYS_PTRACE) | bit(CAP_DAC_READ_SEARCH) |
                                   bit(CAP_CHECKPOINT_RESTORE);  // /proc/PID/map_files

}  // namespace

std::uint64_t effective_capabilities(const std::string& status_text) {
  std::size_t at = status_text.find("\nCapEff:");
  if (at == std::string::npos) return 0;
  return std::strtoull(status_text.c_str() + at + 8, nullptr, 16);
}

std::uint64_t own_capabilities() { return effective_capabilities(read_own_status()); }

std::vector<std::string> missing_capabilities(std::uint64_t effective) {
  std::vector<std::string> missing;
  for (const Needed& needed : kNeeded) {
    if (effective & bit(needed.capability)) continue;
    if (needed.admin_will_do && (effective & bit(CAP_SYS_ADMIN))) continue;
    missing.emplace_back(needed.name);
  }
  return missing;
}

Result<void> check_may_record(const std::string& command_line) {
  auto missing = missing_capabilities(own_capabilities());
  if (!missing.empty())
    return error(fmt::format("not permitted to record: missing {}", fmt::join(missing, ", ")),
                 fmt::format("sudo {}", command_line));
  return {};
}

bool drop_capabilities(bool keep_admin) {
  return keep_only((keep_admin ? bit(CAP_SYS_ADMIN) : 0) | kReading | bit(CAP_BPF) |
                   bit(CAP_PERFMON) |
                   bit(CAP_CHOWN) |  // a plain root's outputs, user/cli/without_root.h
                   bit(CAP_SETUID) | bit(CAP_SETGID) | bit(CAP_KILL) | bit(CAP_SYS_NICE) |
                   bit(CAP_SYSLOG));  // addresses in /proc/kallsyms
}

bool keep_only_reading(bool maps) { return keep_only(kReading | (maps ? bit(CAP_BPF) : 0)); }

}  // namespace dynprof
