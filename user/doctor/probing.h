// What the probes of `doctor` share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "user/doctor/check.h"

namespace dynprof {

// What of the rights to record we have. `admin`: CAP_SYS_ADMIN.
struct OwnRights {
  bool load_programs = false;
  bool admin = false;
};
OwnRights own_rights(std::uint64_t effective_capabilities);

// How a check comes out whose probe ended with `problem`, 0 where it worked: what was refused to who may not
// ask is not known, everything else has `failed`.
struct Trial {
  std::string name = {};
  std::string works = {}, fails = {};  // findings; the reason is added to `fails`
  CheckState failed = CheckState::kMissing;
  std::string consequence = {}, fix = {};  // where it failed
};
Check judge_trial(const Trial& trial, int problem, bool permitted);

// The kernel's parts, each tried out; everything made for it is gone when this returns.
std::vector<Check> bpf_checks(const OwnRights& rights);
std::vector<Check> perf_checks(const OwnRights& rights);

}  // namespace dynprof
