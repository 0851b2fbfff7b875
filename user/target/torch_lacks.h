// What the torch of a process lacks of the sources that identify compiles (docs/concepts/attribution.md): it is
// another version, or another package of that name. Something that is only not there yet, because a module is
// not imported or nothing was compiled, is not reported.
#pragma once

#include <string>
#include <vector>

#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

// One clause each, such as "torch._guards has no CompileId". Empty: all is there, or torch is not.
std::vector<std::string> torch_lacks(RemoteObjects& objects, const PythonRuntime& runtime);

}  // namespace dynprof
