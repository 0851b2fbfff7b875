// The tables of an ELF file of 64 bits: its header, its segments and its sections. The file belongs to
// the target and may be hostile or change while it is read, so everything is read by pread (a file
// truncated under us gives a short read, where a mapping of it would end us by SIGBUS), every count is
// bounded, and all that is read is paid for from a budget.
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/symbols/image_bytes.h"
#include "symbolizer/symbols/read_budget.h"

namespace dynprof {

struct ElfTables {
  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Shdr> sections;  // empty in a file without section headers

  // 64-bit little-endian x86-64 only. The error says why not, without the name of the file.
  static Result<ElfTables> read(const ImageBytes& file, ReadBudget& budget);

  // The offset in the file of an address that a PT_LOAD takes from the file.
  std::optional<std::uint64_t> file_offset(std::uint64_t address) const;
  // The first section of this type, or this name (read from the file).
  const Elf64_Shdr* section_of_type(std::uint32_t type) const;
  const Elf64_Shdr* section_named(std::string_view name, const ImageBytes& file,
                                  ReadBudget& budget) const;
};

}  // namespace dynprof
