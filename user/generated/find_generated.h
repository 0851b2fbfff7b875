// All code that a live torch process generated, found from outside: no code runs in it, and it never
// stops. docs/concepts/generated-code.md describes what is found, how, and what is not available.
#pragma once

#include <sys/types.h>

#include "user/generated/generated_file.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

// Best effort: what changes or is freed while it is read is missing or in `missing`, never wrong. Where
// nothing was compiled there are no files. `pid` is in this process's namespace, for /proc/PID/root.
GeneratedCode find_generated(RemoteObjects& objects, const PythonRuntime& runtime, pid_t pid,
                             const GeneratedLimits& limits);

}  // namespace dynprof
