// Source code from a .pyc file by depyf (PyPI), another project's package, run in a Python of the file's
// version with the caller's rights. The file is the target's: depyf evaluates texts that it makes of the
// bytecode, and here is given a function for this that accepts literals alone.
#pragma once

#include <string>
#include <string_view>

#include "symbolizer/base/result.h"
#include "symbolizer/export/external_program.h"

namespace dynprof {

// The Python to run: `wanted`, a path, or with "" the "python3.N" in `path` (a PATH) that can load `pyc`.
Result<std::string> find_decompiler(std::string_view pyc, const std::string& wanted,
                                    std::string_view path);

struct DecompilerLimits {
  ProgramLimits program{.output_bytes = 1u << 20, .memory_bytes = 1ULL << 30};
};

// Of the Python alone, so that no other code object will do better.
inline constexpr std::string_view kNoDepyf = "has no depyf";

Result<std::string> decompile(const std::string& python, std::string_view pyc,
                              const ProgramLimits& limits);

}  // namespace dynprof
