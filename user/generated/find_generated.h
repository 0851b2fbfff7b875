// Everything a live torch process generated, found from outside: no code runs in it, nothing of it
// stops. docs/concepts/generated-code.md says what is found, how, and what cannot be had.
#pragma once

#include <sys/types.h>

#include "user/generated/generated_file.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

// Best effort: what is torn or freed while we read is missing or in `missing`, never wrong. Where
// nothing was compiled there are no files. `pid` is as we see it, for /proc/PID/root.
GeneratedCode find_generated(RemoteObjects& objects, const PythonRuntime& runtime, pid_t pid,
                             const GeneratedLimits& limits);

}  // namespace dynprof
