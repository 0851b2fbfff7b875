#include "user/target/elf_tables.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

namespace dynprof {
namespace {

constexpr std::size_t kMaxSegments = 256;
constexpr std::size_t kMaxSections = 16'384;  // libtorch_cpu.so 2.13 has 37

Error spent() { return error("takes too long to read, or is too large"); }

// A table of `count` entries; `what` names it in the error.
template <class Entry>
Result<std::vector<Entry>> read_table(const ImageBytes& file, std::uint64_t offset,
                                      std::size_t count, const char* what, ReadBudget& budget) {
  std::vector<Entry> table(count);
  if (count == 0) return table;
  const std::size_t size = count * sizeof(Entry);
  if (!budget.take(size)) return spent();
  if (!file.read(offset, {reinterpret_cast<std::uint8_t*>(table.data()), size}))
    return error(fmt::format("has {} beyond its end", what));
  return table;
}

}  // namespace

Result<ElfTables> ElfTables::read(const ImageBytes& file, ReadBudget& budget) {
  ElfTables tables;
  Elf64_Ehdr& header = tables.header;
  if (!budget.take(sizeof header)) return spent();
  if (!file.read_value(0, header)) return error("is too short for an ELF file");
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return error("is not an ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != EM_X86_64)
    return error("is not for x86-64");
  // Counts that do not fit the header lie in section 0: no file that we want has so many.
  if (header.e_phnum > kMaxSegments || header.e_shnum > kMaxSections ||
      (header.e_shnum == 0 && header.e_shoff != 0))
    return error("has more sections or segments than we read");
  if ((header.e_phnum != 0 && header.e_phentsize != sizeof(Elf64_Phdr)) ||
      (header.e_shnum != 0 && header.e_shentsize != sizeof(Elf64_Shdr)))
    return error(
        fmt::format("has headers of {} and {} bytes", header.e_phentsize, header.e_shentsize));
  ASSIGN_OR_RETURN(tables.segments, read_table<Elf64_Phdr>(file, header.e_phoff, header.e_phnum,
                                                           "program headers", budget));
  ASSIGN_OR_RETURN(tables.sections, read_table<Elf64_Shdr>(file, header.e_shoff, header.e_shnum,
                                                           "section headers", budget));
  return tables;
}

std::optional<std::uint64_t> ElfTables::file_offset(std::uint64_t address) const {
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD || address < segment.p_vaddr) continue;
    const std::uint64_t inside = address - segment.p_vaddr;
    if (inside >= segment.p_filesz || inside > UINT64_MAX - segment.p_offset) continue;
    return segment.p_offset + inside;
  }
  return std::nullopt;
}

const Elf64_Shdr* ElfTables::section_of_type(std::uint32_t type) const {
  for (const Elf64_Shdr& section : sections)
    if (section.sh_type == type) return &section;
  return nullptr;
}

const Elf64_Shdr* ElfTables::section_named(std::string_view name, const ImageBytes& file,
                                           ReadBudget& budget) const {
  if (header.e_shstrndx >= sections.size()) return nullptr;
  const Elf64_Shdr& names = sections[header.e_shstrndx];
  std::string text(name.size() + 1, '\0');
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_name >= names.sh_size || text.size() > names.sh_size - section.sh_name ||
        section.sh_name > UINT64_MAX - names.sh_offset)
      continue;
    if (!budget.take(text.size())) return nullptr;
    if (!file.read(names.sh_offset + section.sh_name,
                   {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}))
      continue;
    if (text.back() == '\0' && std::string_view(text).substr(0, name.size()) == name)
      return &section;
  }
  return nullptr;
}

}  // namespace dynprof
