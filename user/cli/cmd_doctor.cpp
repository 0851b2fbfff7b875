// `doctor`: what of a recording would work here, and on one process; each check with its fix.
#include <fmt/format.h>
#include <sys/utsname.h>

#include <nlohmann/json.hpp>

#include "user/cli/commands.h"
#include "user/cli/end_stuck.h"
#include "user/cli/standard_streams.h"
#include "user/cli/terminal.h"
#include "user/doctor/diagnosis_output.h"
#include "user/doctor/machine_checks.h"
#include "user/doctor/probing.h"
#include "user/doctor/target_checks.h"
#include "user/preflight/capabilities.h"
#include "user/session/stuck_watch.h"

namespace dynprof {
namespace {

constexpr int kNoRecording = 3;  // exit status

Diagnosis diagnose(pid_t pid) {
  Diagnosis found;
  utsname system = {};
  if (uname(&system) == 0)
    found.system = fmt::format("{} {} on {}", system.sysname, system.release, system.machine);
  found.pid = pid;
  const OwnRights rights = own_rights(own_capabilities());
  std::vector<Check> kernel = bpf_checks(rights);
  for (Check& check : perf_checks(rights)) kernel.push_back(std::move(check));
  found.groups.push_back({"kernel", std::move(kernel)});
  found.groups.push_back({"machine", machine_checks()});
  if (pid == 0) return found;
  keep_only_reading();
  const StuckWatch watch(end_stuck);
  found.groups.push_back({"process", target_checks(pid)});
  return found;
}

}  // namespace

int run_doctor(const CommandLine& line) {
  const Diagnosis found = diagnose(line.doctor.pid);
  const std::string text =
      line.doctor.json
          ? to_json(found).dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) +
                "\n"
          : diagnosis_text(found);
  if (auto printed = print_out(text); !printed) return fail(printed.error());
  return verdict(found) == CheckState::kMissing ? kNoRecording : 0;
}

}  // namespace dynprof
