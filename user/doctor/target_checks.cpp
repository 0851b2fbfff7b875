#include "user/doctor/target_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "user/doctor/probing.h"
#include "user/inject/load_library.h"
#include "user/preflight/check_target.h"
#include "user/target/clock_function.h"
#include "user/target/descendants.h"
#include "user/target/marker_rules.h"
#include "user/target/torch_lacks.h"
#include "user/target/torch_layout.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxLooks = 100'000;

Check failed(const char* name, CheckState state, const Error& why, std::string consequence = {}) {
  return {name, state, why.what, std::move(consequence), why.hint};
}

Check process_check(pid_t pid, const ProcessStat& stat) {
  const auto uid = process_uid(pid);
  std::string finding = fmt::format("{}, state {}", stat.comm, stat.state);
  if (uid) finding += fmt::format(", user {}", *uid);
  if (auto threads = list_threads(pid)) finding += fmt::format(", {} threads", threads->size());
  if (auto shared = shares_our_pid_namespace(pid); shared && !*shared)
    finding += ", in a container";
  if (auto seccomp = read_status_field(pid, "Seccomp");
      seccomp && seccomp->find_first_of("12") != std::string::npos)
    finding += ", with a seccomp filter";
  return {"process", CheckState::kOk, finding, "", ""};
}

Check python_check(const PythonRuntime& python) {
  const std::string way =
      python.found_by.substr(0, python.found_by.find(" in " + python.image_path));
  return {"python", CheckState::kOk,
          fmt::format("CPython {} {} in {}, by {}; threads of Python: {}", python.version,
                      python.layout.free_threaded ? "(free-threaded)" : "with a GIL",
                      python.image_path, way, python.threads.size()),
          "", ""};
}

Check torch_check(RemoteObjects& objects, const PythonRuntime& python,
                  const std::optional<TorchTarget>& torch) {
  if (!torch)
    return {"torch", CheckState::kOk, "not imported yet", "it is looked for while recording", ""};
  const std::string version =
      torch->version.empty() ? "torch of unknown version" : "torch " + torch->version;
  const std::vector<std::string> lacks = torch_lacks(objects, python);
  if (!lacks.empty())
    return {"torch", CheckState::kDegraded,
            fmt::format("{}; not found: {}", version, fmt::join(lacks, "; ")),
            "compiles come from the other sources",
            "docs/concepts/attribution.md says which torch has them"};
  if (!torch->complete)
    return {"torch", CheckState::kOk, fmt::format("{}; not known yet: {}", version, torch->missing),
            "it is looked for again while recording", ""};
  return {"torch", CheckState::kOk, fmt::format("{}; all sources of compiles were found", version),
          "", ""};
}

Check phases_check(RemoteObjects& objects, const PythonRuntime& python) {
  auto clock = find_clock_function(objects, python);
  if (!clock)
    return failed("exact-phases", CheckState::kDegraded, clock.error(),
                  "begin and end of compiles and phases come from samples");
  return {"exact-phases", CheckState::kOk,
          fmt::format("time.time_ns is at {:#x} in {}", clock->offset, clock->mapping.path), "",
          ""};
}

Check tracing_check(RemoteObjects& objects, const PythonRuntime& python) {
  if (resolve_inline_function(objects, python))
    return {"dynamo-profile", CheckState::kOk, "the function to watch was found", "", ""};
  if (!objects.find_module(python.main_interpreter, "torch._dynamo.symbolic_convert"))
    return {"dynamo-profile", CheckState::kOk, "torch._dynamo is not imported yet",
            "it is looked for while recording", ""};
  return {"dynamo-profile", CheckState::kDegraded, "this torch has no function to watch",
          "calls of the user functions that Dynamo traces come from samples",
          "torch 2.13 to 2.15 has one"};
}

Check other_profiler_check(pid_t pid) {
  std::vector<std::string> others;
  for (const Descendant& other : find_all_processes(kMaxLooks))
    if (other.pid != getpid() && records(read_arguments(other.pid), pid))
      others.push_back(std::to_string(other.pid));
  if (others.empty())
    return {"other-dynprof", CheckState::kOk, "no other dynprof-bpf records this process", "", ""};
  return {"other-dynprof", CheckState::kOk,
          fmt::format("dynprof-bpf {} records this process", fmt::join(others, ", ")),
          "both record it; each compiling thread has watchpoints for two", ""};
}

// Everything that is read from the interpreter.
std::vector<Check> python_checks(pid_t pid) {
  PythonDiscovery details;
  auto python = discover_python(pid, &details);
  if (!python) return {python_fault_check(python.error(), details)};
  ProcessMemory memory(pid);
  RemoteObjects objects(memory, python->layout);
  objects.set_str_type(python->str_type);
  const std::optional<TorchTarget> torch = resolve_torch(objects, *python);
  std::vector<Check> checks = {python_check(*python), torch_check(objects, *python, torch),
                               phases_check(objects, *python)};
  if (torch) checks.push_back(tracing_check(objects, *python));
  return checks;
}

}  // namespace

Check python_fault_check(const Error& why, const PythonDiscovery& details) {
  if (details.fault == PythonFault::kStarting)
    return failed("python", CheckState::kUnknown, why, "a recording waits for it");
  if (fault_leaves_native_names(details.fault))
    return failed("python", CheckState::kDegraded, why, "only native function names can be shown");
  return failed("python", CheckState::kMissing, why);
}

Check gpu_check(const CudaMappings& cuda, const Result<std::string>& loadable) {
  const std::string load =
      loadable ? fmt::format("`record --gpu on` loads the library for times, {}", *loadable)
               : fmt::format(
                     "the library for times cannot be loaded: {}; start the job with "
                     "CUDA_INJECTION64_PATH (docs/howto/gpu.md)",
                     loadable.error().what);
  switch (cuda.best()) {
    case GpuTier::kLibrary:
      return {"gpu", CheckState::kOk, "libdynprof_cupti.so is in the process",
              "launches, and times on the GPU (tier 1)", ""};
    case GpuTier::kDriver:
      return {"gpu", CheckState::kOk, fmt::format("{} is mapped", cuda.driver->path),
              fmt::format("launches without times on the GPU (tier 3); {}", load), ""};
    case GpuTier::kRuntime:
      return {"gpu", CheckState::kOk, fmt::format("{} is mapped, no driver", cuda.runtime->path),
              fmt::format("calls of the runtime only (tier 3); {}", load), ""};
    case GpuTier::kNone:
      break;
  }
  return {"gpu", CheckState::kOk, "no CUDA library is mapped", "", ""};
}

Check tracer_check(const std::string& tracer_pid) {
  const std::size_t at = tracer_pid.find_first_not_of(" \t");
  const std::string tracer = at == std::string::npos ? "0" : tracer_pid.substr(at);
  if (tracer == "0") return {"tracer", CheckState::kOk, "no debugger is attached", "", ""};
  return {"tracer", CheckState::kOk, fmt::format("process {} traces it", tracer),
          "while it is stopped there is nothing to sample", ""};
}

bool records(std::string_view arguments, pid_t pid) {
  const std::string number = std::to_string(pid);
  const std::string_view program = arguments.substr(0, arguments.find('\0'));
  if (program.substr(program.rfind('/') + 1) != "dynprof-bpf") return false;
  for (std::size_t at = program.size(); at < arguments.size();) {
    const std::size_t end = std::min(arguments.find('\0', at), arguments.size());
    std::string_view word = arguments.substr(at, end - at);
    at = end + 1;
    if (word == "doctor" || word == "dump" || word == "compiles") return false;
    if (word == "--") break;  // a command of its own
    for (std::string_view option : {"--pid=", "-p"})
      if (word.starts_with(option)) word.remove_prefix(option.size());
    for (;;) {  // 4242,4243
      if (word.substr(0, word.find(',')) == number) return true;
      if (word.find(',') == std::string_view::npos) break;
      word.remove_prefix(word.find(',') + 1);
    }
  }
  return false;
}

std::vector<Check> target_checks(pid_t pid) {
  auto stat = check_target(pid);
  if (!stat) return {failed("process", CheckState::kMissing, stat.error())};
  std::vector<Check> checks = {process_check(pid, *stat)};
  if (auto access = ProcessMemory(pid).check_access(); !access) {
    Check memory = failed("memory", CheckState::kMissing, access.error());
    if (memory.fix.empty()) memory.fix = fmt::format("sudo dynprof-bpf doctor --pid {}", pid);
    checks.push_back(std::move(memory));
    return checks;
  }
  checks.push_back({"memory", CheckState::kOk, "it may be read", "", ""});
  for (Check& check : python_checks(pid)) checks.push_back(std::move(check));
  if (auto mappings = read_mappings(pid))
    checks.push_back(gpu_check(find_cuda(*mappings), can_load_into_python(pid)));
  if (auto tracer = read_status_field(pid, "TracerPid")) checks.push_back(tracer_check(*tracer));
  checks.push_back(other_profiler_check(pid));
  return checks;
}

}  // namespace dynprof
