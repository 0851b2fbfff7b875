// Finding _PyRuntime where no symbol names it: by the cookie of 3.13+, else by a word that proves to
// be an interpreter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "user/target/python_image.h"
#include "user/target/python_layouts.h"
#include "user/target/remote_memory.h"

namespace dynprof {

struct RuntimeScan {
  std::optional<std::uint64_t> place;  // address of _PyRuntime
  bool complete = true;                // all of it could be read, up to the limit of a scan
};
RuntimeScan scan_for_cookie(RemoteMemory& memory, std::span<const AddressRange> data);
// Address of _PyRuntime.
std::optional<std::uint64_t> scan_for_interpreter(RemoteMemory& memory,
                                                  std::span<const AddressRange> data,
                                                  const PythonLayout& layout);

}  // namespace dynprof
