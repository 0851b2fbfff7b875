#include "user/inject/load_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "user/inject/pending_call.h"
#include "user/inject/remote_script.h"
#include "user/target/process.h"
#include "user/target/python_runtime.h"

namespace dynprof {
namespace {

bool has_script_interface(const PythonRuntime& python) {
  return python.layout.python >= python_version(3, 14);
}

Result<PythonRuntime> find_python(pid_t pid) {
  ASSIGN_OR_RETURN(PythonRuntime python, discover_python(pid));
  if (python.layout.free_threaded)
    return error(fmt::format("process {} runs a free-threaded Python", pid));
  ASSIGN_OR_RETURN(const ProcessStat stat, read_process_stat(pid));
  if (stat.state == 't') return traced_error(pid);  // its tracer alone lets it go on
  if (stat.state == 'T')
    return error(fmt::format("process {} is stopped", pid), fmt::format("kill -CONT {}", pid));
  // A pending call is made by Python's main thread, and has to be added by it (pending_call.h).
  const std::vector<pid_t> ids = namespace_ids(pid, pid);
  const auto is_main = [&](const RemoteThread& thread) {
    return thread.native_id == 0 ||
           (!ids.empty() && thread.native_id == static_cast<std::uint64_t>(ids.back()));
  };
  if (std::none_of(python.threads.begin(), python.threads.end(), is_main))
    return error(fmt::format("the main thread of process {} runs no Python", pid));
  return python;
}

}  // namespace

Result<Loaded> load_into_python(pid_t pid, const std::string& library, const LoadLimits& limits) {
  ASSIGN_OR_RETURN(const PythonRuntime python, find_python(pid));
  if (!has_script_interface(python)) return load_by_pending_call(python, library, limits);
  auto loaded = load_by_script(python, library, limits);
  if (loaded || loaded.error().errno_value != ETIMEDOUT) return loaded;
  // Another thread may run Python.
  const auto functions = find_pending_functions(python);
  if (!functions || functions->add_for_any_thread == 0) return loaded;
  return load_by_pending_call(python, library, limits);
}

Result<std::string> can_load_into_python(pid_t pid) {
  ASSIGN_OR_RETURN(const PythonRuntime python, find_python(pid));
  if (has_script_interface(python)) {
    TRY(find_script_places(python));
    return std::string("by its interpreter's remote debugging interface");
  }
  TRY(find_pending_functions(python));
  return std::string("by a pending call of its interpreter");
}

}  // namespace dynprof
