#include "user/gpu/usdt_notes.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "user/target/elf_tables.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxNotes = 256;
constexpr std::uint64_t kMaxNoteBytes = 1 << 20;
constexpr std::uint32_t kNoteType = 3;  // NT_STAPSDT
constexpr std::string_view kOwner("stapsdt\0", 8);

class NoteReader {
 public:
  NoteReader(const ElfTables& tables, std::uint64_t base) : tables_(tables), base_(base) {}

  std::vector<UsdtNote> read(std::string_view notes) const {
    std::vector<UsdtNote> found;
    Elf64_Nhdr header;
    while (found.size() < kMaxNotes && notes.size() >= sizeof header) {
      std::memcpy(&header, notes.data(), sizeof header);
      notes.remove_prefix(sizeof header);
      const auto name = take(notes, header.n_namesz);
      const auto text = take(notes, header.n_descsz);
      if (!name || !text) break;
      if (header.n_type != kNoteType || *name != kOwner) continue;
      if (auto note = parse(*text)) found.push_back(*std::move(note));
    }
    return found;
  }

 private:
  // The first `size` bytes; what fills them up to a multiple of four goes with them.
  static std::optional<std::string_view> take(std::string_view& from, std::size_t size) {
    if (size > from.size()) return std::nullopt;
    const std::string_view taken = from.substr(0, size);
    from.remove_prefix(std::min((size + 3) / 4 * 4, from.size()));
    return taken;
  }

  // Three addresses, then three strings with their ends.
  std::optional<UsdtNote> parse(std::string_view text) const {
    std::uint64_t addresses[3];
    if (text.size() <= sizeof addresses || text.back() != '\0') return std::nullopt;
    std::memcpy(addresses, text.data(), sizeof addresses);
    text.remove_prefix(sizeof addresses);
    std::string_view parts[3];
    for (std::string_view& part : parts) {
      const std::size_t end = text.find('\0');
      if (end == std::string_view::npos) return std::nullopt;
      part = text.substr(0, end);
      text.remove_prefix(end + 1);
    }
    // A prelinked file was moved after the note was written.
    const std::uint64_t moved = base_ ? base_ - addresses[1] : 0;
    auto location = tables_.file_offset(addresses[0] + moved);
    auto semaphore = addresses[2] ? tables_.file_offset(addresses[2] + moved) : 0;
    if (!location || !semaphore) return std::nullopt;
    return UsdtNote{std::string(parts[0]), std::string(parts[1]), std::string(parts[2]), *location,
                    *semaphore};
  }

  const ElfTables& tables_;
  std::uint64_t base_;  // address of the section .stapsdt.base, 0: there is none
};

}  // namespace

Result<std::vector<UsdtNote>> read_usdt_notes(int fd) {
  ReadBudget budget = budget_for_one_file();
  const ImageBytes file(fd);
  ASSIGN_OR_RETURN(const ElfTables tables, ElfTables::read(file, budget));
  const Elf64_Shdr* notes = tables.section_named(".note.stapsdt", file, budget);
  if (notes == nullptr || notes->sh_size > kMaxNoteBytes || !budget.take(notes->sh_size))
    return std::vector<UsdtNote>();
  std::string bytes(notes->sh_size, '\0');
  if (!file.read(notes->sh_offset, {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()}))
    return error("has notes beyond its end");
  const Elf64_Shdr* base = tables.section_named(".stapsdt.base", file, budget);
  return NoteReader(tables, base != nullptr ? base->sh_addr : 0).read(bytes);
}

}  // namespace dynprof
