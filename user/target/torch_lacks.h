// What the torch of a process does not have of that by which compiles are told (docs/concepts/attribution.md):
// another version, or something that only calls itself torch. What is only not there yet, because a
// module is not imported or no compile was made, is not named.
#pragma once

#include <string>
#include <vector>

#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

// One clause each, such as "torch._guards has no CompileId". Empty: all is there, or torch is not.
std::vector<std::string> torch_lacks(RemoteObjects& objects, const PythonRuntime& runtime);

}  // namespace dynprof
