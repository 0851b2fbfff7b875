// A few symbols of an ELF file by their names. The string table is searched for the names first, then
// the symbol table for entries that refer to a place where one was found: both are read once, in blocks,
// so a hostile file costs bounded time and next to no memory however large its tables are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "user/target/elf_tables.h"

namespace dynprof {

struct ElfSymbol {
  std::uint64_t address = 0;  // in the file's own address space
  std::uint64_t size = 0;
};

struct SymbolQuery {
  std::span<const std::string_view> names;
  bool functions_only = false;
  bool exported_only = false;  // .dynsym alone; .symtab can be large
};

// One answer per name, from .dynsym, and for names it lacks from .symtab. Undefined symbols do not
// count; of several with one name a global one is taken before a weak one before a local one. A table
// that is damaged is an error, one that is not there is none.
Result<std::vector<std::optional<ElfSymbol>>> search_symbols(const ImageBytes& file,
                                                             const ElfTables& tables,
                                                             const SymbolQuery& query,
                                                             ReadBudget& budget);

}  // namespace dynprof
