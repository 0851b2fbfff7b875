// The parts that the compiler split off a function (GCC's `name.cold`), in a file whose symbols do not
// name them: Debian's stripped python3.11 keeps 14 KB of its interpreter loop apart.
#pragma once

#include <vector>

#include "symbolizer/symbols/elf_symbols.h"
#include "user/unwind_tables/byte_source.h"

namespace dynprof {

// By offset in the file, as `whole`. A part has unwind information of its own, like a function, but is
// jumped into past its first byte from the rest of it, which no code does to another function. Parts with only
// a few such jumps may be missed. Empty where nothing can be read.
std::vector<ElfSymbols::Range> split_parts(const ByteSource& file, const ElfSymbols::Range& whole);

}  // namespace dynprof
