// CPython's own way to run a script in another process (3.14 and later, the mechanism of sys.remote_exec): the
// path of a script and a flag are written where _Py_DebugOffsets tells, and the interpreter runs the
// script at its next safe point. The process is not stopped.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "symbolizer/base/result.h"
#include "user/inject/loading.h"
#include "user/target/python_runtime.h"

namespace dynprof {

// All in bytes: from the start of PyInterpreterState, and of PyThreadState.
struct ScriptPlaces {
  std::uint64_t main_thread = 0;  // PyInterpreterState.threads.main
  std::uint64_t enabled = 0;      // PyInterpreterState.config.remote_debug, an int
  std::uint64_t eval_breaker = 0;
  std::uint64_t pending = 0;  // an int
  std::uint64_t path = 0;
  std::uint64_t path_bytes = 0;
};

// From the first kDebugOffsetsBytes of _PyRuntime, each number checked.
Result<ScriptPlaces> parse_script_places(std::span<const std::byte> runtime);

// Why the interpreter would not run a script, or nothing.
Result<ScriptPlaces> find_script_places(const PythonRuntime& python);

// The text of the script: calls InitializeInjection of `library`, and writes "loaded" or why not to `result`. In a
// process with another id than `pid`, a forked child, it does nothing.
std::string loading_script(const std::string& library, const std::string& result, pid_t pid);

Result<Loaded> load_by_script(const PythonRuntime& python, const std::string& library,
                              const LoadLimits& limits);

}  // namespace dynprof
