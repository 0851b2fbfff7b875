// The layouts of the CPython versions we know (user/target/layouts: x86-64, default builds); from 3.13 on
// the interpreter describes itself in _Py_DebugOffsets, which is preferred, and the layout of its version
// fills in what it leaves out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "symbolizer/base/result.h"
#include "user/target/python_layout.h"

namespace dynprof {

// "3.10 to 3.15"
std::string supported_versions();
std::uint16_t newest_version();

// The measured table; null for a version that has none.
const PythonLayout* measured_layout(std::uint16_t python);

inline constexpr std::string_view kDebugCookie = "xdebugpy";
inline constexpr std::size_t kDebugOffsetsBytes = 1024;  // more than 3.15's struct

struct DebugOffsets {
  std::uint32_t hex_version = 0;  // PY_VERSION_HEX
  PythonLayout layout;
};
// Reads the start of _PyRuntime (3.13+), checking every number: hostile or foreign bytes give an
// error. Free-threaded 3.13 has no interpreter in our tests: what the struct leaves out is taken from the
// default build, and its uses are checked by type at run time. Free-threaded 3.14 and later are refused:
// each thread runs a copy of the bytecode of its own (co_tlbc), so that an instruction pointer does not
// give the line.
Result<DebugOffsets> parse_debug_offsets(std::span<const std::byte> runtime);

// What the single reads of the walker and our own code rely on. An error names the field.
Result<void> validate_layout(const PythonLayout& layout);

}  // namespace dynprof
