#include "symbolizer/report/cpu_use.h"

#include <algorithm>
#include <map>
#include <set>

#include "symbolizer/attribution/machine_use.h"
#include "symbolizer/attribution/process_command.h"

namespace dynprof {

CpuUse cpu_use(const Selection& selection) {
  const Attribution& attribution = selection.attribution();
  const Tables& tables = selection.tables();
  const std::vector<bool> helpers = helper_threads(selection.analysis);
  std::set<std::int32_t> compiling;
  for (const Compile& compile : attribution.compiles()) compiling.insert(compile.pid);
  compiling.insert(attribution.main_pid());
  const std::vector<std::string> commands = thread_commands(tables);
  CpuUse use;
  std::map<std::string, std::uint64_t> others;
  for (const StackCount& count : selection.analysis.counts().all()) {
    const Thread& thread = tables.threads[count.thread];
    if (compiling.contains(thread.pid)) {
      use.target_ns += count.ns;
    } else if (helpers[count.thread]) {
      use.helper_ns += count.ns;
    } else {
      use.other_ns += count.ns;
      others[commands[count.thread]] += count.ns;
    }
  }
  const MachineUse machine = read_machine_use(tables);
  if (machine.known) {
    use.machine = true;
    use.cpus = machine.cpus;
    use.own_ns = machine.own_ns;
    use.idle_ns = machine.idle_ns;
    for (const auto& [name, ns] : machine.others) others[name] += ns;
    // What is left of the time the CPUs were busy, also of processes that came and went without being seen.
    const std::uint64_t known = use.target_ns + use.helper_ns + use.own_ns;
    use.other_ns = machine.busy_ns - std::min(machine.busy_ns, known);
  }
  use.others.assign(others.begin(), others.end());
  std::stable_sort(use.others.begin(), use.others.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return use;
}

}  // namespace dynprof
