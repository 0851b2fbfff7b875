// The USDT probes of an ELF file (section .note.stapsdt, as <sys/sdt.h> writes it). The file may be
// hostile: every length is checked, and a note that does not fit is not a probe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"

namespace dynprof {

struct UsdtNote {
  std::string provider;
  std::string name;
  std::string arguments;        // "4@%edi 8@%rdx"
  std::uint64_t location = 0;   // offset in the file of the instruction to probe
  std::uint64_t semaphore = 0;  // ... of the 16-bit count of listeners; 0: it has none
  bool operator==(const UsdtNote&) const = default;
};

// `fd` stays the caller's. An error only if it is not an ELF file.
Result<std::vector<UsdtNote>> read_usdt_notes(int fd);

}  // namespace dynprof
