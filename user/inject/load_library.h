// Loads libdynprof_cupti.so into a CPython that runs, at a safe point of its interpreter. Only on request: it
// runs code inside a process that did not ask for it.
//
//   3.14 and later  the interpreter's own interface (remote_script.h), which is of the main thread; the process is not
//                   stopped. Where the main thread runs no Python: as 3.12
//   3.12, 3.13      a pending call of any thread (pending_call.h); the main thread is stopped for less than a millisecond
//   3.10, 3.11      a pending call of the main thread; it is stopped for less than a millisecond
#pragma once

#include <sys/types.h>

#include <string>

#include "symbolizer/base/result.h"
#include "user/inject/loading.h"

namespace dynprof {

// Returns when the library is there and its InitializeInjection has run. After an error the process is as it
// was: a request that was not taken up is cancelled.
Result<Loaded> load_into_python(pid_t pid, const std::string& library, const LoadLimits& limits);

// How it would be loaded, without doing anything: the words of Loaded::how; or why it cannot be.
Result<std::string> can_load_into_python(pid_t pid);

}  // namespace dynprof
