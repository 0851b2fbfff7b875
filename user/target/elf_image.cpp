#include "user/target/elf_image.h"

#include <fmt/format.h>

namespace dynprof {
namespace {

constexpr std::uint64_t kPage = 4096;

}  // namespace

Result<ElfImage> ElfImage::open(UniqueFd file, std::string name, ReadBudget& budget) {
  auto tables = ElfTables::read(ImageBytes(file.get()), budget);
  if (!tables) return error(fmt::format("{} {}", name, tables.error().what));
  ElfImage image;
  image.file_ = std::move(file);
  image.tables_ = *std::move(tables);
  for (const Elf64_Phdr& segment : image.tables_.segments) {
    if (segment.p_type == PT_INTERP) image.wants_loader_ = true;
    if (segment.p_type != PT_LOAD) continue;
    image.segments_.push_back({segment.p_vaddr, segment.p_offset, segment.p_filesz, segment.p_memsz,
                               (segment.p_flags & PF_W) != 0});
  }
  return image;
}

std::vector<std::optional<ElfSymbol>> ElfImage::find_symbols(
    std::span<const std::string_view> names, ReadBudget& budget, bool exported_only) const {
  const SymbolQuery query = {.names = names, .exported_only = exported_only};
  auto found = search_symbols(ImageBytes(file_.get()), tables_, query, budget);
  if (!found) return std::vector<std::optional<ElfSymbol>>(names.size());
  return *std::move(found);
}

std::optional<std::uint64_t> ElfImage::load_bias(std::span<const Segment> segments,
                                                 std::span<const Mapping> mappings) {
  // The surest sign first: a mapping that begins where a segment begins and may be written as it
  // may; then one that only begins there (RELRO takes the right away); then one inside (mprotect
  // splits mappings). Neighbouring segments can share a page of the file, hence the order.
  auto page = [](std::uint64_t value) { return value / kPage * kPage; };
  for (int pass = 0; pass < 3; ++pass) {
    for (const Mapping& mapping : mappings) {
      for (const Segment& segment : segments) {
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
