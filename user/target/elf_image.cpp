#include "user/target/elf_image.h"

#include <fmt/format.h>
#include <gelf.h>
#include <libelf.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace dynprof {
namespace {

constexpr std::size_t kMaxSegments = 256;
constexpr std::size_t kMaxSymbols = 8'000'000;  // libtorch_cpu.so has about 535,000
constexpr std::size_t kMaxSections = 65'536;
constexpr std::uint64_t kMaxSection = 256ULL << 20;  // bytes of a symbol or string table
constexpr std::uint64_t kPage = 4096;

Error elf_problem(const std::string& name) {
  return error(fmt::format("{} is not a readable ELF file: {}", name, elf_errmsg(-1)));
}

// libelf allocates by what the file says: refuse what no interpreter has before it does.
Result<void> check_header(int file, const std::string& name) {
  Elf64_Ehdr header{};
  if (::pread(file, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
    return error(fmt::format("{} is too short for an ELF file", name));
  }
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return error(fmt::format("{} is not an ELF file", name));
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    return error(fmt::format("{} is not for x86-64", name));
  }
  // Counts that do not fit the header lie in section 0.
  if ((header.e_shnum == 0 && header.e_shoff != 0) || header.e_phnum == PN_XNUM) {
    return error(fmt::format("{} has more sections or segments than we read", name));
  }
  return {};
}

}  // namespace

void ElfImage::ElfEnd::operator()(Elf* elf) const { ::elf_end(elf); }

Result<ElfImage> ElfImage::open(UniqueFd file, std::string name) {
  ::elf_version(EV_CURRENT);
  TRY(check_header(file.get(), name));
  ElfImage image;
  image.file_ = std::move(file);
  image.elf_.reset(::elf_begin(image.file_.get(), ELF_C_READ, nullptr));
  if (!image.elf_ || ::elf_kind(image.elf_.get()) != ELF_K_ELF) return elf_problem(name);
  std::size_t count = 0;
  if (::elf_getphdrnum(image.elf_.get(), &count) != 0) return elf_problem(name);
  for (std::size_t i = 0; i < std::min(count, kMaxSegments); ++i) {
    GElf_Phdr segment;
    if (!::gelf_getphdr(image.elf_.get(), static_cast<int>(i), &segment)) break;
    if (segment.p_type == PT_INTERP) image.wants_loader_ = true;
    if (segment.p_type != PT_LOAD) continue;
    image.segments_.push_back({segment.p_vaddr, segment.p_offset, segment.p_filesz, segment.p_memsz,
                               (segment.p_flags & PF_W) != 0});
  }
  return image;
}

void ElfImage::scan_section(std::uint32_t type, std::span<const std::string_view> names,
                            std::vector<std::optional<ElfSymbol>>& found) const {
  std::unordered_map<std::string_view, std::size_t> missing;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!found[i]) missing.emplace(names[i], i);
  }
  Elf_Scn* section = nullptr;
  for (std::size_t n = 0; !missing.empty() && n < kMaxSections; ++n) {
    section = ::elf_nextscn(elf_.get(), section);
    if (!section) break;
    GElf_Shdr header;
    GElf_Shdr strings;
    if (!::gelf_getshdr(section, &header) || header.sh_type != type) continue;
    if (!::gelf_getshdr(::elf_getscn(elf_.get(), header.sh_link), &strings)) continue;
    if (header.sh_size > kMaxSection || strings.sh_size > kMaxSection) continue;
    Elf_Data* data = ::elf_getdata(section, nullptr);
    if (!data || !data->d_buf) continue;
    std::size_t count = std::min(data->d_size / sizeof(Elf64_Sym), kMaxSymbols);
    for (std::size_t i = 0; i < count && !missing.empty(); ++i) {
      GElf_Sym symbol;
      if (!::gelf_getsym(data, static_cast<int>(i), &symbol)) break;
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0) continue;
      const char* name = ::elf_strptr(elf_.get(), header.sh_link, symbol.st_name);
      if (!name) continue;
      auto wanted = missing.find(std::string_view(name));
      if (wanted == missing.end()) continue;
      found[wanted->second] = ElfSymbol{symbol.st_value, symbol.st_size};
      missing.erase(wanted);
    }
  }
}

std::vector<std::optional<ElfSymbol>> ElfImage::find_symbols(
    std::span<const std::string_view> names, bool exported_only) const {
  std::vector<std::optional<ElfSymbol>> found(names.size());
  scan_section(SHT_DYNSYM, names, found);
  if (!exported_only) scan_section(SHT_SYMTAB, names, found);
  return found;
}

std::optional<std::uint64_t> ElfImage::load_bias(std::span<const Mapping> mappings) const {
  // The surest sign first: a mapping that begins where a segment begins and may be written as it
  // may; then one that only begins there (RELRO takes the right away); then one inside (mprotect
  // splits mappings). Neighbouring segments can share a page of the file, hence the order.
  auto page = [](std::uint64_t value) { return value / kPage * kPage; };
  for (int pass = 0; pass < 3; ++pass) {
    for (const Mapping& mapping : mappings) {
      for (const Segment& segment : segments_) {
        bool begins = mapping.offset == page(segment.offset);
        bool inside = mapping.offset > page(segment.offset) &&
                      mapping.offset < segment.offset + segment.file_size;
        bool fits = pass == 0   ? begins && mapping.writable == segment.writable
                    : pass == 1 ? begins
                                : inside;
        if (fits) return mapping.start - mapping.offset + segment.offset - segment.address;
      }
    }
  }
  return std::nullopt;
}

}  // namespace dynprof
