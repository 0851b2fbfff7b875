// Settings of the machine and rights of this process, from files below `root`: "" except in tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "user/doctor/check.h"

namespace dynprof {

// "none [integrity] confidentiality" -> "integrity"; "" where nothing is in brackets.
std::string chosen_word(std::string_view text);

Check lockdown_check(const std::string& root);
// kernel.* that a recording depends on; `admin`: this process has CAP_SYS_ADMIN.
std::vector<Check> sysctl_checks(const std::string& root, bool admin);
// What this kernel requires CAP_SYS_ADMIN for.
struct AdminFor {
  bool perf_events = false, probes = false;
};
Check capability_check(std::uint64_t effective, AdminFor admin);
// Signs of a container: a pid namespace, a seccomp filter.
Check container_check(const std::string& root, bool initial_pid_namespace);
Check descriptor_check(std::uint64_t hard_limit);
// Of the file system where the output directory would be made.
Check disk_check(const std::string& directory, std::uint64_t free_bytes, std::uint64_t all_bytes);

// All of these, of this machine.
std::vector<Check> machine_checks();

}  // namespace dynprof
