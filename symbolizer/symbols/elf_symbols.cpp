#include "symbolizer/symbols/elf_symbols.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "symbolizer/symbols/demangle.h"

namespace dynprof {
namespace {

// libtorch_cpu.so 2.13 has 535 K; beyond this a file is not worth our memory.
constexpr std::size_t kMaxSymbols = 4'000'000;
constexpr std::size_t kMaxSegments = 256;
constexpr std::size_t kMaxSections = 65'535;
constexpr std::size_t kBlock = 64 * 1024 / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
// Hand-written assembly has size 0: it goes on for so long at most.
constexpr std::uint64_t kWithoutSize = 4096;

bool is_function(const Elf64_Sym& symbol) {
  const int type = ELF64_ST_TYPE(symbol.st_info);
  return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF &&
         symbol.st_name != 0;
}

// The symbol table to use, and its strings.
struct Tables {
  Elf64_Shdr symbols{};
  Elf64_Shdr names{};
};

bool find_tables(const ImageBytes& image, const Elf64_Ehdr& header, Tables& found) {
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum > kMaxSections) return false;
  const auto section_at = [&](std::uint64_t index, Elf64_Shdr& section) {
    return index < header.e_shnum && header.e_shoff < (1ULL << 62) &&
           image.read_value(header.e_shoff + index * sizeof(Elf64_Shdr), section);
  };
  bool any = false;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!section_at(i, section)) break;
    const bool whole = section.sh_type == SHT_SYMTAB;
    if ((!whole && (section.sh_type != SHT_DYNSYM || any)) || section.sh_size == 0) continue;
    Elf64_Shdr names;
    if (!section_at(section.sh_link, names) || names.sh_type != SHT_STRTAB) continue;
    found = {section, names};
    any = true;
    if (whole) break;
  }
  return any;
}

std::vector<ImageSegment> read_segments(const ImageBytes& image, const Elf64_Ehdr& header) {
  std::vector<ImageSegment> segments;
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff >= (1ULL << 62)) return segments;
  for (std::uint64_t i = 0; i < std::min<std::size_t>(header.e_phnum, kMaxSegments); ++i) {
    Elf64_Phdr segment;
    if (!image.read_value(header.e_phoff + i * sizeof segment, segment)) break;
    if (segment.p_type == PT_LOAD)
      segments.push_back({segment.p_offset, segment.p_filesz, segment.p_vaddr});
  }
  return segments;
}

}  // namespace

std::optional<std::uint64_t> address_at(std::span<const ImageSegment> segments,
                                        std::uint64_t file_offset) {
  for (const ImageSegment& segment : segments)
    if (file_offset >= segment.offset && file_offset - segment.offset < segment.size)
      return segment.address + (file_offset - segment.offset);
  return std::nullopt;
}

Result<ElfSymbols> ElfSymbols::read(ImageBytes image) {
  Elf64_Ehdr header;
  if (!image.read_value(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return error("not an ELF file of 64 bits");
  ElfSymbols result(image);
  result.segments_ = read_segments(image, header);
  Tables tables;
  // Stripped of both: no names, not an error.
  if (!find_tables(image, header, tables)) return result;
  if (tables.symbols.sh_entsize != sizeof(Elf64_Sym)) return result;
  result.complete_ = tables.symbols.sh_type == SHT_SYMTAB;
  result.names_offset_ = tables.names.sh_offset;
  result.names_size_ = tables.names.sh_size;
  std::vector<std::uint8_t> block(kBlock);
  const std::uint64_t end =
      std::min<std::uint64_t>(tables.symbols.sh_size, kMaxSymbols * sizeof(Elf64_Sym));
  for (std::uint64_t at = 0; at < end; at += kBlock) {
    const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, end - at));
    const std::size_t got =
        image.read_some(tables.symbols.sh_offset + at, std::span(block).first(want));
    result.take(std::span(block).first(got));
    if (got < want) break;
  }
  result.symbols_.shrink_to_fit();
  std::sort(result.symbols_.begin(), result.symbols_.end(), [](const Symbol& a, const Symbol& b) {
    return a.address != b.address ? a.address < b.address : a.name < b.name;
  });
  return result;
}

void ElfSymbols::take(std::span<const std::uint8_t> symbols) {
  for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.size(); at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol;
    std::memcpy(&symbol, symbols.data() + at, sizeof symbol);
    if (!is_function(symbol)) continue;
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
    symbols_.push_back({symbol.st_value,
                        static_cast<std::uint32_t>(std::min<std::uint64_t>(symbol.st_size, kMost)),
                        symbol.st_name});
  }
}

std::string ElfSymbols::name_of(const Symbol& symbol, std::size_t most) const {
  if (symbol.name >= names_size_) return {};
  std::string name;
  std::array<std::uint8_t, 256> part;
  while (name.size() < most) {
    const std::uint64_t at = std::uint64_t{symbol.name} + name.size();
    if (at >= names_size_) break;
    const auto want =
        static_cast<std::size_t>(std::min<std::uint64_t>(part.size(), names_size_ - at));
    const std::size_t got = image_.read_some(names_offset_ + at, std::span(part).first(want));
    const auto* text = reinterpret_cast<const char*>(part.data());
    const std::size_t length = strnlen(text, got);
    name.append(text, length);
    if (length < part.size()) break;
  }
  return name;
}

std::optional<std::string> ElfSymbols::find(std::uint64_t file_offset) const {
  const auto address = address_at(segments_, file_offset);
  return address ? find_address(*address) : std::nullopt;
}

std::optional<std::string> ElfSymbols::find_address(std::uint64_t address) const {
  auto after = std::upper_bound(
      symbols_.begin(), symbols_.end(), address,
      [](std::uint64_t value, const Symbol& symbol) { return value < symbol.address; });
  // Several symbols may share a start: look back a little.
  for (int looked = 0; after != symbols_.begin() && looked < 8; looked++) {
    --after;
    const std::uint64_t size = after->size != 0 ? after->size : kWithoutSize;
    if (address - after->address >= size) continue;
    std::string name = name_of(*after, kMaxMangledBytes);
    // "pthread_mutex_lock@@GLIBC_2.2.5": which version of it is of no matter here.
    name.resize(std::min(name.find('@'), name.size()));
    if (!name.empty()) return demangle(name.c_str());
  }
  return std::nullopt;
}

std::vector<ElfSymbols::Range> ElfSymbols::parts_of(std::string_view name,
                                                    std::span<const ImageSegment> segments) const {
  std::vector<Range> parts;
  for (const Symbol& symbol : symbols_) {
    if (symbol.size == 0) continue;
    // One read each: what follows the name does not matter.
    const std::string own = name_of(symbol, name.size() + 1);
    if (!own.starts_with(name)) continue;
    if (own.size() > name.size() && own[name.size()] != '.') continue;
    for (const ImageSegment& segment : segments) {
      if (symbol.address < segment.address || symbol.address - segment.address >= segment.size)
        continue;
      const std::uint64_t begin = segment.offset + (symbol.address - segment.address);
      parts.push_back({begin, begin + symbol.size});
      break;
    }
  }
  return parts;
}

}  // namespace dynprof
