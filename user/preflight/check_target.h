// Can this pid be a target? Every refusal says what it is and what to do.
#pragma once

#include "symbolizer/base/result.h"
#include "user/target/process.h"
#include "user/target/python_runtime.h"

namespace dynprof {

// A living user-space process of this pid namespace, named by its thread group leader.
Result<ProcessStat> check_target(pid_t pid);

// The message when `pid` has no Python that can be walked: an error that ends the recording, or,
// for a Python of another version, a sentence (then only native functions can be shown).
bool fault_leaves_native_names(PythonFault fault);

}  // namespace dynprof
