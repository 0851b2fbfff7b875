// The separate debug file of an ELF file, as distributions ship it: by build-id, or by the name and
// checksum in .gnu_debuglink. Looked for in the target's own file system only.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "symbolizer/base/unique_fd.h"
#include "user/unwind_tables/byte_source.h"
#include "user/unwind_tables/elf_layout.h"

namespace dynprof {

struct DebugFile {
  ByteSource file;
  ElfLayout layout;
};

// Below `root` (an open directory, -1: nowhere): /usr/lib/debug/.build-id, beside `path` as the target
// knows the file, and /usr/lib/debug below its folder. The first that belongs to `layout` and is wanted.
// Reads are paid from `budget`, which must outlive the file.
std::optional<DebugFile> find_debug_file(int root, const std::string& path, const ElfLayout& layout,
                                         const std::function<bool(const ElfLayout&)>& wanted,
                                         ReadBudget* budget);

}  // namespace dynprof
