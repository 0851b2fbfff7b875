#include "user/doctor/probing.h"

#include <fmt/format.h>
#include <linux/capability.h>

#include <cerrno>

#include "symbolizer/base/result.h"

namespace dynprof {

OwnRights own_rights(std::uint64_t effective_capabilities) {
  const auto has = [&](int capability) { return (effective_capabilities >> capability & 1) != 0; };
  OwnRights rights;
  rights.admin = has(CAP_SYS_ADMIN);
  rights.load_programs = rights.admin || (has(CAP_BPF) && has(CAP_PERFMON));
  return rights;
}

Check judge_trial(const Trial& trial, int problem, bool permitted) {
  if (problem == 0) return {trial.name, CheckState::kOk, trial.works, "", ""};
  if (!permitted && (problem == EPERM || problem == EACCES))
    return {trial.name, CheckState::kUnknown, "not probed: it needs CAP_BPF and CAP_PERFMON", "",
            "sudo dynprof-bpf doctor"};
  return {trial.name, trial.failed, fmt::format("{} ({})", trial.fails, errno_text(problem)),
          trial.consequence, trial.fix};
}

}  // namespace dynprof
