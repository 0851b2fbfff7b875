#include "symbolizer/symbols/elf_symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <gelf.h>
#include <libelf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace dynprof {
namespace {

// libtorch_cpu.so 2.13 has 535 K; beyond this a file is not worth our memory.
constexpr std::size_t kMaxSymbols = 4'000'000;
constexpr std::size_t kMaxNameBytes = 1ULL << 30;

struct ElfEnd {
  void operator()(Elf* elf) const { elf_end(elf); }
};

}  // namespace

std::string demangle(const char* mangled) {
  std::string name(mangled, strnlen(mangled, 16 * kMaxSymbolBytes));
  if (name.rfind("_Z", 0) == 0 && name.size() < 16 * kMaxSymbolBytes) {
    int status = 0;
    std::unique_ptr<char, decltype(&std::free)> text(
        abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
    if (status == 0 && text) name = text.get();
  }
  if (name.size() > kMaxSymbolBytes) name.resize(kMaxSymbolBytes);
  return name;
}

Result<ElfSymbols> ElfSymbols::read(int fd) {
  elf_version(EV_CURRENT);
  std::unique_ptr<Elf, ElfEnd> elf(elf_begin(fd, ELF_C_READ, nullptr));
  if (!elf || elf_kind(elf.get()) != ELF_K_ELF) return error("not an ELF file");
  ElfSymbols result;

  std::size_t segment_count = 0;
  if (elf_getphdrnum(elf.get(), &segment_count) != 0) segment_count = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(segment_count, 256); i++) {
    GElf_Phdr header;
    if (gelf_getphdr(elf.get(), static_cast<int>(i), &header) && header.p_type == PT_LOAD)
      result.segments_.push_back({header.p_offset, header.p_filesz, header.p_vaddr});
  }

  Elf_Scn* chosen = nullptr;
  GElf_Shdr chosen_header = {};
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf.get(), section));) {
    GElf_Shdr header;
    if (!gelf_getshdr(section, &header)) continue;
    bool symtab = header.sh_type == SHT_SYMTAB;
    if (!symtab && (header.sh_type != SHT_DYNSYM || chosen)) continue;
    chosen = section;
    chosen_header = header;
    if (symtab) break;
  }
  if (!chosen) return result;  // stripped of both: no names, not an error
  Elf_Data* data = elf_getdata(chosen, nullptr);
  if (!data || chosen_header.sh_entsize == 0) return result;
  std::size_t count = std::min<std::size_t>(data->d_size / chosen_header.sh_entsize, kMaxSymbols);
  for (std::size_t i = 0; i < count; i++) {
    GElf_Sym symbol;
    if (!gelf_getsym(data, static_cast<int>(i), &symbol)) break;
    int type = GELF_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF) continue;
    const char* name = elf_strptr(elf.get(), chosen_header.sh_link, symbol.st_name);
    if (!name || !*name) continue;
    std::size_t length = strnlen(name, 16 * kMaxSymbolBytes);
    if (result.names_.size() + length + 1 > kMaxNameBytes) break;
    result.symbols_.push_back(
        {symbol.st_value, symbol.st_size, static_cast<std::uint32_t>(result.names_.size())});
    result.names_.append(name, length).push_back('\0');
  }
  std::stable_sort(result.symbols_.begin(), result.symbols_.end(),
                   [](const Symbol& a, const Symbol& b) { return a.address < b.address; });
  return result;
}

std::optional<std::string> ElfSymbols::find(std::uint64_t file_offset) const {
  for (const Segment& segment : segments_) {
    if (file_offset < segment.offset || file_offset - segment.offset >= segment.size) continue;
    std::uint64_t address = segment.address + (file_offset - segment.offset);
    auto after = std::upper_bound(
        symbols_.begin(), symbols_.end(), address,
        [](std::uint64_t value, const Symbol& symbol) { return value < symbol.address; });
    // Several symbols may share a start, and hand-written assembly has size 0: look back a little.
    for (int looked = 0; after != symbols_.begin() && looked < 8; looked++) {
      --after;
      if (address - after->address < std::max<std::uint64_t>(after->size, 1) || after->size == 0)
        return demangle(names_.c_str() + after->name);
    }
    return std::nullopt;
  }
  return std::nullopt;
}

std::vector<ElfSymbols::Range> ElfSymbols::parts_of(std::string_view name) const {
  std::vector<Range> parts;
  for (const Symbol& symbol : symbols_) {
    const std::string_view own(names_.c_str() + symbol.name);
    if (!own.starts_with(name) || symbol.size == 0) continue;
    if (own.size() > name.size() && own[name.size()] != '.') continue;
    for (const Segment& segment : segments_) {
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
