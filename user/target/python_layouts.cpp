#include "user/target/python_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "user/target/layouts/cpython_310.h"
#include "user/target/layouts/cpython_311.h"
#include "user/target/layouts/cpython_315.h"

namespace dynprof {
namespace {

// One line for each version, oldest first.
constexpr std::array kMeasured = {cpython_310(), cpython_311(), cpython_312(),
                                  cpython_313(), cpython_314(), cpython_315()};

// The single reads of the walker; limits.h.
constexpr bool fits(const PythonLayout& t) {
  const dp_python_layout& b = t.bpf;
  return b.frame_code + 8 <= DP_FRAME_READ_BYTES && b.frame_previous + 8 <= DP_FRAME_READ_BYTES &&
         b.frame_instr + (b.instr_is_index ? 4 : 8) <= DP_FRAME_READ_BYTES &&
         (b.frame_owner == DP_NO_OFFSET || b.frame_owner < DP_FRAME_READ_BYTES) &&
         (b.frame_is_entry == DP_NO_OFFSET || b.frame_is_entry < DP_FRAME_READ_BYTES) &&
         b.code_firstlineno + 4 <= DP_CODE_READ_BYTES &&
         b.code_filename + 8 <= DP_CODE_READ_BYTES && b.code_name + 8 <= DP_CODE_READ_BYTES &&
         (b.code_qualname == DP_NO_OFFSET || b.code_qualname + 8 <= DP_CODE_READ_BYTES) &&
         (b.code_version == DP_NO_OFFSET || b.code_version + 4 <= DP_CODE_READ_BYTES) &&
         b.code_linetable + 8 <= DP_CODE_READ_BYTES;
}
static_assert(std::all_of(kMeasured.begin(), kMeasured.end(), fits));

}  // namespace

std::string supported_versions() {
  return fmt::format("3.{} to 3.{}", kMeasured.front().minor(), kMeasured.back().minor());
}

std::uint16_t newest_version() { return kMeasured.back().python; }

const PythonLayout* measured_layout(std::uint16_t python) {
  for (const PythonLayout& layout : kMeasured) {
    if (layout.python == python) return &layout;
  }
  return nullptr;
}

Result<void> validate_layout(const PythonLayout& layout) {
  if (!fits(layout)) {
    return error(
        fmt::format("the frame or code object of this Python {}.{} build is laid out too "
                    "widely for one read",
                    layout.major(), layout.minor()));
  }
  struct Needed {
    const char* name;
    std::uint32_t offset;
  };
  const Needed needed[] = {
      {"runtime.interpreters.head", layout.runtime_interpreters_head},
      {"interpreter.threads.head", layout.interpreter_threads_head},
      {"interpreter.modules", layout.interpreter_modules},
      {"thread.thread_id", layout.bpf.tstate_thread_id},
      {"thread.interp", layout.bpf.tstate_interp},
      {"thread.frame", layout.bpf.tstate_frame},
      {"frame.localsplus", layout.bpf.frame_localsplus},
      {"str data", layout.unicode_ascii_data},
  };
  for (const Needed& field : needed) {
    if (field.offset == 0) {
      return error(fmt::format("the layout of Python {}.{} has no {}", layout.major(),
                               layout.minor(), field.name));
    }
  }
  return {};
}

}  // namespace dynprof
