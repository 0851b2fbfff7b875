// The C function behind time.time_ns. torch calls it once where a phase begins and once where it ends,
// and few others call it. Its address is in the method definition that the function object points to,
// so neither symbols nor the place of the module `time` matter (built in, or a file of its own).
#pragma once

#include <cstdint>
#include <optional>

#include "symbolizer/base/result.h"
#include "user/target/process.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"

namespace dynprof {

struct ClockFunction {
  Mapping mapping;           // of the file it is in
  std::uint64_t offset = 0;  // of its first instruction, in that file
};

// An error says why it is not known: the module is not imported, or the function was replaced.
// Offsets of PyCFunctionObject and PyMethodDef are the same in CPython 3.8 to 3.15.
Result<ClockFunction> find_clock_function(RemoteObjects& objects, const PythonRuntime& runtime);

}  // namespace dynprof
