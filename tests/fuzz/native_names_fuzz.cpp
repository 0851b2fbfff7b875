// What names native code: any bytes as an ELF file with symbols, as a C++ name. The first
// byte chooses. All of it must end in bounded memory, and names stay below their bound.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <elf.h>

#include "symbolizer/base/result.h"
#include "symbolizer/symbols/demangle.h"
#include "symbolizer/symbols/elf_symbols.h"
#include "symbolizer/symbols/short_name.h"

using namespace dynprof;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

// Header, one segment, a symbol table and its strings, one after the other.
struct Example {
  Elf64_Ehdr header{};
  Elf64_Phdr segment{};
  Elf64_Shdr sections[3]{};
  Elf64_Sym symbols[3]{};
  char names[40]{};
};

Example example() {
  Example file;
  std::memcpy(file.header.e_ident, ELFMAG, SELFMAG);
  file.header.e_ident[EI_CLASS] = ELFCLASS64;
  file.header.e_ident[EI_DATA] = ELFDATA2LSB;
  file.header.e_phoff = offsetof(Example, segment);
  file.header.e_phentsize = sizeof(Elf64_Phdr);
  file.header.e_phnum = 1;
  file.header.e_shoff = offsetof(Example, sections);
  file.header.e_shentsize = sizeof(Elf64_Shdr);
  file.header.e_shnum = 3;
  file.segment = {PT_LOAD, PF_X, 0, 0x1000, 0x1000, sizeof(Example), sizeof(Example), 0x1000};
  file.sections[1].sh_type = SHT_SYMTAB;
  file.sections[1].sh_offset = offsetof(Example, symbols);
  file.sections[1].sh_size = sizeof file.symbols;
  file.sections[1].sh_entsize = sizeof(Elf64_Sym);
  file.sections[1].sh_link = 2;
  file.sections[2].sh_type = SHT_STRTAB;
  file.sections[2].sh_offset = offsetof(Example, names);
  file.sections[2].sh_size = sizeof file.names;
  std::memcpy(file.names, "\0_ZN1a1bIiEEvT_\0main\0_start", 28);
  const std::uint32_t starts[] = {1, 16, 21};
  for (std::size_t i = 0; i < 3; ++i) {
    file.symbols[i].st_name = starts[i];
    file.symbols[i].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    file.symbols[i].st_shndx = 1;
    file.symbols[i].st_value = 0x1000 + 16 * i;
    file.symbols[i].st_size = i == 2 ? 0 : 16;
  }
  return file;
}

void check_name(const std::optional<std::string>& name) {
  if (!name) return;
  DYNPROF_CHECK(!name->empty() && name->size() <= kMaxSymbolBytes);
  DYNPROF_CHECK(short_name(*name).size() <= 3 * name->size());
}

void check_elf(std::span<const std::uint8_t> bytes) {
  const auto symbols = ElfSymbols::read(ImageBytes(bytes));
  if (!symbols) {
    DYNPROF_CHECK(!symbols.error().what.empty());
    return;
  }
  DYNPROF_CHECK(symbols->size() <= bytes.size() / sizeof(Elf64_Sym));
  for (std::uint64_t at : {0ULL, 16ULL, 40ULL, 0x1000ULL, ~0ULL}) {
    check_name(symbols->find(at));
    check_name(symbols->find_address(at));
    check_name(symbols->find_address(0x1000 + at));
  }
  for (const ElfSymbols::Range& part : symbols->parts_of("main"))
    DYNPROF_CHECK(part.begin != part.end);
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  static const Example whole = example();
  if ((size < 8 || seed % 16 == 0) && max_size > sizeof whole) {
    data[0] = 0;
    std::memcpy(data + 1, &whole, sizeof whole);
    size = 1 + sizeof whole;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::span(data, size).subspan(1);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 2) {
    case 0:
      check_elf(bytes);
      break;
    default:
      DYNPROF_CHECK(short_name(text).size() <= 3 * text.size());
      check_name(demangle(std::string(text).c_str()).empty()
                     ? std::nullopt
                     : std::optional(demangle(std::string(text).c_str())));
  }
  return 0;
}
