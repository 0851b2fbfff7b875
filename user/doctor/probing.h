// Shared by the probes of `doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "user/doctor/check.h"

namespace dynprof {

// Which of the rights to record this process has. `admin`: CAP_SYS_ADMIN.
struct OwnRights {
  bool load_programs = false;
  bool admin = false;
};
OwnRights own_rights(std::uint64_t effective_capabilities);

// The state of a check whose probe ended with `problem`, 0: success. Without the rights to probe, a refusal
// means unknown; every other failure is `failed`.
struct Trial {
  std::string name = {};
  std::string works = {}, fails = {};  // findings; the reason is added to `fails`
  CheckState failed = CheckState::kMissing;
  std::string consequence = {}, fix = {};  // where it failed
};
Check judge_trial(const Trial& trial, int problem, bool permitted);

// The kernel's parts, each probed; everything created for it is removed when this returns.
std::vector<Check> bpf_checks(const OwnRights& rights);
std::vector<Check> perf_checks(const OwnRights& rights);

}  // namespace dynprof
