#include "user/doctor/machine_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <optional>

#include "symbolizer/base/amounts.h"
#include "user/kernel/perf_event.h"
#include "user/kernel/uprobes.h"
#include "user/preflight/capabilities.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

constexpr std::size_t kMostBytes = 1 << 16;
constexpr std::uint64_t kFewDescriptors = 1024;
// As OutputDirectory::disk_is_nearly_full.
constexpr std::uint64_t kLeastFree = 64 << 20;
constexpr std::uint64_t kLeastShare = 20;

std::optional<std::string> read_small(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string text(kMostBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::optional<long> read_number(const std::string& path) {
  const std::optional<std::string> text = read_small(path);
  if (!text) return std::nullopt;
  long number = 0;
  auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (failed != std::errc()) return std::nullopt;
  return number;
}

std::string own_status_field(const std::string& root, std::string_view name) {
  const std::string text = read_small(root + "/proc/self/status").value_or("");
  const std::size_t at = text.find(fmt::format("\n{}:", name));
  if (at == std::string::npos) return "";
  const std::size_t begin = text.find_first_not_of(" \t", at + name.size() + 2);
  return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

struct Bad {
  CheckState state = CheckState::kOk;
  std::string consequence, fix;
};

using Judge = Bad (*)(long value, bool admin);

Bad judge_paranoid(long value, bool admin) {
  if (value <= 2 || admin) return {};
  return {CheckState::kMissing, "each perf event requires CAP_SYS_ADMIN, which is missing",
          "sudo sysctl kernel.perf_event_paranoid=2"};
}

Bad judge_kptr(long value, bool) {
  if (value < 2) return {};
  return {CheckState::kDegraded, "kernel functions have no names",
          "sudo sysctl kernel.kptr_restrict=1"};
}

Bad judge_yama(long value, bool) {
  if (value < 3) return {};
  return {CheckState::kMissing, "no process may read another's memory, and it cannot be lowered",
          "set kernel.yama.ptrace_scope to 2 or less in /etc/sysctl.d, then boot again"};
}

Bad judge_rate(long value, bool) {
  if (value >= long{kDefaultFrequencyHz}) return {};
  return {
      CheckState::kDegraded,
      fmt::format("the default of {} samples a second is refused", kDefaultFrequencyHz),
      fmt::format("record -F {}, or sudo sysctl kernel.perf_event_max_sample_rate=1000", value)};
}

Bad no_matter(long, bool) { return {}; }

struct Sysctl {
  const char* name;
  const char* path;
  Judge judge;
};
constexpr Sysctl kSysctls[] = {
    {"perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid", judge_paranoid},
    {"kptr_restrict", "/proc/sys/kernel/kptr_restrict", judge_kptr},
    {"ptrace_scope", "/proc/sys/kernel/yama/ptrace_scope", judge_yama},
    {"perf_event_max_sample_rate", "/proc/sys/kernel/perf_event_max_sample_rate", judge_rate},
    {"unprivileged_bpf_disabled", "/proc/sys/kernel/unprivileged_bpf_disabled", no_matter},
    {"perf_event_mlock_kb", "/proc/sys/kernel/perf_event_mlock_kb", no_matter},
};

struct Wanted {
  int capability;
  const char* name;
  const char* without;
};
// docs/security.md has what each is for. Those without which nothing works are not here.
constexpr Wanted kWanted[] = {
    {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "files of the target"},
    {CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE", "deleted files of the target"},
    {CAP_SYSLOG, "CAP_SYSLOG", "names of kernel functions"},
    {CAP_SYS_NICE, "CAP_SYS_NICE", "priority on a busy machine"},
    {CAP_SETUID, "CAP_SETUID", "outputs made as another user"},
    {CAP_SETGID, "CAP_SETGID", "outputs made as another user"},
    {CAP_KILL, "CAP_KILL", "ending the command of record -- CMD"},
    {CAP_CHOWN, "CAP_CHOWN", "root's own output directory"},
};

// CAP_SYS_ADMIN stands in for this one, as in the kernel.
bool has(std::uint64_t effective, int capability) {
  if (effective >> capability & 1) return true;
  return capability == CAP_CHECKPOINT_RESTORE && (effective >> CAP_SYS_ADMIN & 1);
}

}  // namespace

std::string chosen_word(std::string_view text) {
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']', begin == std::string_view::npos ? 0 : begin);
  if (begin == std::string_view::npos || end == std::string_view::npos) return "";
  return std::string(text.substr(begin + 1, end - begin - 1));
}

Check lockdown_check(const std::string& root) {
  const std::optional<std::string> text = read_small(root + "/sys/kernel/security/lockdown");
  if (!text) return {"lockdown", CheckState::kOk, "this kernel shows none", "", ""};
  const std::string mode = chosen_word(*text);
  if (mode == "confidentiality")
    return {"lockdown", CheckState::kMissing, "mode confidentiality",
            "BPF programs may not read memory",
            "boot with lockdown=integrity, or without Secure Boot"};
  return {"lockdown", CheckState::kOk, fmt::format("mode {}", mode.empty() ? "unknown" : mode), "",
          ""};
}

std::vector<Check> sysctl_checks(const std::string& root, bool admin) {
  std::vector<Check> checks;
  std::vector<std::string> fine;
  for (const Sysctl& sysctl : kSysctls) {
    const std::optional<long> value = read_number(root + sysctl.path);
    if (!value) continue;  // a kernel without it does not restrict
    Bad bad = sysctl.judge(*value, admin);
    if (bad.state == CheckState::kOk)
      fine.push_back(fmt::format("{}={}", sysctl.name, *value));
    else
      checks.push_back({sysctl.name, bad.state, fmt::format("kernel setting {}", *value),
                        bad.consequence, bad.fix});
  }
  if (!fine.empty())
    checks.push_back({"sysctls", CheckState::kOk, fmt::format("{}", fmt::join(fine, " ")), "", ""});
  return checks;
}

Check capability_check(std::uint64_t effective, AdminFor admin) {
  const std::vector<std::string> needed = missing_capabilities(effective);
  if (!needed.empty())
    return {"capabilities", CheckState::kMissing,
            fmt::format("without {}", fmt::join(needed, ", ")), "not permitted to record",
            "run it with sudo; in a container: --cap-add BPF,PERFMON,SYS_PTRACE"};
  std::vector<std::string> lacking;
  const bool no_admin = !has(effective, CAP_SYS_ADMIN);
  if (no_admin && (admin.probes || admin.perf_events))
    lacking.push_back(fmt::format("CAP_SYS_ADMIN ({})", admin.probes ? "uprobes" : "perf events"));
  for (const Wanted& wanted : kWanted)
    if (!has(effective, wanted.capability))
      lacking.push_back(fmt::format("{} ({})", wanted.name, wanted.without));
  if (lacking.empty())
    return {"capabilities", CheckState::kOk, "everything that a recording uses", "", ""};
  return {"capabilities", CheckState::kDegraded,
          fmt::format("without {}", fmt::join(lacking, ", ")),
          no_admin && admin.perf_events ? "watchpoints and samples need CAP_SYS_ADMIN here" : "",
          "run it with sudo; in a container: --cap-add each of them"};
}

Check container_check(const std::string& root, bool initial_pid_namespace) {
  const std::string seccomp = own_status_field(root, "Seccomp");
  std::string finding = initial_pid_namespace ? "the machine's own pid namespace"
                                              : "a pid namespace below the machine's";
  std::string consequence;
  if (!initial_pid_namespace) consequence = "processes outside of it are not seen";
  if (seccomp == "1" || seccomp == "2") finding += ", with a seccomp filter";
  const std::string groups = read_small(root + "/proc/self/cgroup").value_or("");
  if (const std::size_t at = groups.rfind("::"); at != std::string::npos) {
    const std::string group = groups.substr(at + 2, groups.find('\n', at) - at - 2);
    if (group != "/") finding += fmt::format(", control group {}", group);
  }
  return {"container", CheckState::kOk, finding, consequence, ""};
}

Check descriptor_check(std::uint64_t hard_limit) {
  if (hard_limit >= kFewDescriptors)
    return {"open-files", CheckState::kOk,
            hard_limit == RLIM_INFINITY ? "no limit" : fmt::format("up to {}", hard_limit), "", ""};
  return {"open-files", CheckState::kDegraded, fmt::format("at most {}", hard_limit),
          "processes with many files or CPUs are recorded in part", "ulimit -Hn 4096"};
}

Check disk_check(const std::string& directory, std::uint64_t free_bytes, std::uint64_t all_bytes) {
  const std::string finding = fmt::format("{} free in {}", format_bytes(free_bytes), directory);
  if (free_bytes < kLeastFree && free_bytes < all_bytes / kLeastShare)
    return {"disk", CheckState::kDegraded, finding, "a recording ends at once",
            "record -o DIR on another disk"};
  return {"disk", CheckState::kOk, finding, "", ""};
}

std::vector<Check> machine_checks() {
  const std::uint64_t effective = own_capabilities();
  const bool admin = effective >> CAP_SYS_ADMIN & 1;
  const long paranoid = read_number("/proc/sys/kernel/perf_event_paranoid").value_or(0);
  std::vector<Check> checks = {
      capability_check(effective, {.perf_events = paranoid > 2, .probes = !has_uprobe_links()}),
      lockdown_check("")};
  for (Check& check : sysctl_checks("", admin)) checks.push_back(std::move(check));
  checks.push_back(container_check("", in_initial_pid_namespace()));
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) checks.push_back(descriptor_check(limit.rlim_max));
  struct statvfs disk = {};
  if (statvfs(".", &disk) == 0)
    checks.push_back(disk_check("the working directory",
                                std::uint64_t{disk.f_bavail} * disk.f_frsize,
                                std::uint64_t{disk.f_blocks} * disk.f_frsize));
  return checks;
}

}  // namespace dynprof
