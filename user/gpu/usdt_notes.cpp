#include "user/gpu/usdt_notes.h"

#include <gelf.h>
#include <libelf.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

namespace dynprof {
namespace {

constexpr std::size_t kMaxNotes = 256;
constexpr std::size_t kMaxSections = 4096;
constexpr std::uint64_t kMaxNoteBytes = 1 << 20;
constexpr std::uint32_t kNoteType = 3;  // NT_STAPSDT
constexpr std::string_view kOwner("stapsdt\0", 8);

struct ElfEnd {
  void operator()(Elf* elf) const { elf_end(elf); }
};

class NoteReader {
 public:
  explicit NoteReader(Elf* elf) : elf_(elf) {
    std::size_t count = 0;
    if (elf_getphdrnum(elf, &count) != 0) return;
    for (std::size_t i = 0; i < count && i < kMaxSections; ++i) {
      GElf_Phdr header;
      if (gelf_getphdr(elf, static_cast<int>(i), &header) && header.p_type == PT_LOAD)
        loads_.push_back(header);
    }
  }

  std::vector<UsdtNote> read() {
    std::size_t names = 0;
    if (elf_getshdrstrndx(elf_, &names) != 0) return {};
    Elf_Scn* notes = nullptr;
    std::size_t sections = 0;
    for (Elf_Scn* section = nullptr;
         (section = elf_nextscn(elf_, section)) && sections < kMaxSections; ++sections) {
      GElf_Shdr header;
      if (!gelf_getshdr(section, &header)) continue;
      const char* name = elf_strptr(elf_, names, header.sh_name);
      if (!name) continue;
      if (header.sh_type == SHT_NOTE && header.sh_size <= kMaxNoteBytes &&
          !std::strcmp(name, ".note.stapsdt"))
        notes = section;
      if (!std::strcmp(name, ".stapsdt.base")) base_ = header.sh_addr;
    }
    std::vector<UsdtNote> found;
    Elf_Data* data = notes ? elf_getdata(notes, nullptr) : nullptr;
    if (!data || !data->d_buf) return found;
    std::size_t at = 0;
    while (found.size() < kMaxNotes) {
      GElf_Nhdr header;
      std::size_t name_at = 0, text_at = 0;
      const std::size_t next = gelf_getnote(data, at, &header, &name_at, &text_at);
      if (next == 0) break;
      const char* bytes = static_cast<const char*>(data->d_buf);
      if (header.n_type == kNoteType &&
          std::string_view(bytes + name_at, header.n_namesz) == kOwner) {
        if (auto note = parse({bytes + text_at, header.n_descsz})) found.push_back(*note);
      }
      at = next;
    }
    return found;
  }

 private:
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
    auto location = file_offset(addresses[0] + moved);
    auto semaphore = addresses[2] ? file_offset(addresses[2] + moved) : 0;
    if (!location || !semaphore) return std::nullopt;
    return UsdtNote{std::string(parts[0]), std::string(parts[1]), std::string(parts[2]), *location,
                    *semaphore};
  }

  std::optional<std::uint64_t> file_offset(std::uint64_t address) const {
    for (const GElf_Phdr& load : loads_)
      if (address >= load.p_vaddr && address - load.p_vaddr < load.p_filesz)
        return address - load.p_vaddr + load.p_offset;
    return std::nullopt;
  }

  Elf* elf_;
  std::vector<GElf_Phdr> loads_;
  std::uint64_t base_ = 0;
};

}  // namespace

Result<std::vector<UsdtNote>> read_usdt_notes(int fd) {
  if (elf_version(EV_CURRENT) == EV_NONE) return error("libelf is too old");
  std::unique_ptr<Elf, ElfEnd> elf(elf_begin(fd, ELF_C_READ, nullptr));
  if (!elf || elf_kind(elf.get()) != ELF_K_ELF || gelf_getclass(elf.get()) != ELFCLASS64)
    return error("not a 64-bit ELF file");
  return NoteReader(elf.get()).read();
}

}  // namespace dynprof
