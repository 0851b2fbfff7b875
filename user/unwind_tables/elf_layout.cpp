#include "user/unwind_tables/elf_layout.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace dynprof {
namespace {

constexpr std::size_t kMaxSegments = 256;
constexpr std::size_t kMaxSections = 65'536;
constexpr std::uint64_t kMaxNames = 16ULL << 20;  // bytes of section names
constexpr std::uint64_t kMaxNotes = 64ULL << 10;  // bytes of one note segment
constexpr std::size_t kMinBuildId = 8;
constexpr std::size_t kMaxBuildId = 64;
constexpr std::uint64_t kPage = 4096;

std::uint64_t page_of(std::uint64_t value) { return value & ~(kPage - 1); }

// A copy, since nothing in a file needs to be aligned.
template <class T>
bool take(ByteView bytes, std::size_t offset, T& value) {
  if (offset > bytes.size() || sizeof value > bytes.size() - offset) return false;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return true;
}

Result<Elf64_Ehdr> read_header(const ByteSource& file) {
  Elf64_Ehdr header{};
  if (!file.read_value(0, header)) return error("is too short for an ELF file");
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return error("is not an ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != EM_X86_64) {
    return error("is not for x86-64");
  }
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN) return error("is not loadable");
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kMaxSegments) {
    return error(
        fmt::format("has {} program headers of {} bytes", header.e_phnum, header.e_phentsize));
  }
  return header;
}

std::string build_id_in(ByteView notes) {
  std::size_t at = 0;
  Elf64_Nhdr note{};
  while (take(notes, at, note)) {
    at += sizeof note;
    const std::size_t left = notes.size() - at;
    const std::size_t name = (std::size_t{note.n_namesz} + 3) / 4 * 4;
    if (name > left) break;
    const std::size_t content = (std::size_t{note.n_descsz} + 3) / 4 * 4;
    if (note.n_descsz > left - name) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes.data() + at, "GNU", 4) == 0 && note.n_descsz >= kMinBuildId &&
        note.n_descsz <= kMaxBuildId) {
      std::string hex;
      for (std::uint8_t byte : notes.subspan(at + name, note.n_descsz)) {
        hex += fmt::format("{:02x}", byte);
      }
      return hex;
    }
    at += std::min(name + content, left);
  }
  return {};
}

class LayoutReader {
 public:
  explicit LayoutReader(const ByteSource& file) : file_(file) {}

  Result<ElfLayout> read() {
    ASSIGN_OR_RETURN(header_, read_header(file_));
    layout_.fixed_address = header_.e_type == ET_EXEC;
    layout_.entry = header_.e_entry;
    TRY(read_segments());
    if (!layout_.code_base()) return error("has no executable segment");
    read_sections();
    if (!layout_.eh_frame.present()) find_frames_by_segment();
    return std::move(layout_);
  }

 private:
  Result<void> read_segments() {
    for (std::uint64_t i = 0; i < header_.e_phnum; ++i) {
      Elf64_Phdr segment{};
      if (header_.e_phoff > file_.size() ||
          !file_.read_value(header_.e_phoff + i * sizeof segment, segment)) {
        return error("has program headers beyond its end");
      }
      if (segment.p_type == PT_LOAD) add_load(segment);
      if (segment.p_type == PT_GNU_EH_FRAME) frame_header_ = segment;
      if (segment.p_type == PT_NOTE && layout_.build_id.empty()) {
        take_notes(segment.p_offset, segment.p_filesz);
      }
    }
    return {};
  }

  void add_load(const Elf64_Phdr& segment) {
    // What wraps around the address space is no segment.
    if (segment.p_vaddr + segment.p_memsz < segment.p_vaddr ||
        segment.p_offset + segment.p_filesz < segment.p_offset) {
      return;
    }
    layout_.segments.push_back({segment.p_offset, segment.p_vaddr, segment.p_filesz,
                                segment.p_memsz, (segment.p_flags & PF_X) != 0});
  }

  void take_notes(std::uint64_t offset, std::uint64_t size) {
    if (auto notes = file_.block(offset, std::min(size, kMaxNotes))) {
      layout_.build_id = build_id_in(notes->view());
    }
  }

  void read_sections() {
    const std::size_t count = header_.e_shnum;
    if (count == 0 || count > kMaxSections || header_.e_shentsize != sizeof(Elf64_Shdr)) return;
    auto table = file_.block(header_.e_shoff, count * sizeof(Elf64_Shdr));
    Elf64_Shdr strings{};
    if (!table || !take(table->view(), std::size_t{header_.e_shstrndx} * sizeof strings, strings) ||
        strings.sh_size > kMaxNames) {
      return;
    }
    auto names = file_.block(strings.sh_offset, strings.sh_size);
    if (!names) return;
    for (std::size_t i = 0; i < count; ++i) {
      Elf64_Shdr section{};
      if (!take(table->view(), i * sizeof section, section)) return;
      if (section.sh_type == SHT_NOBITS || section.sh_name >= names->view().size()) continue;
      const auto* text = reinterpret_cast<const char*>(names->view().data()) + section.sh_name;
      const std::size_t room = names->view().size() - section.sh_name;
      take_section({text, ::strnlen(text, std::min<std::size_t>(room, 32))}, section);
    }
  }

  void take_section(std::string_view name, const Elf64_Shdr& header) {
    if (name == ".gnu_debuglink") return take_debug_link(header);
    if (name == ".note.gnu.build-id" && layout_.build_id.empty()) {
      return take_notes(header.sh_offset, header.sh_size);
    }
    ElfSection* section = name == ".eh_frame"      ? &layout_.eh_frame
                          : name == ".debug_frame" ? &layout_.debug_frame
                          : name == ".debug_info"  ? &layout_.debug_info
                          : name == ".zdebug_info" ? &layout_.debug_info
                          : name == ".plt"         ? &layout_.plt
                          : name == ".plt.got"     ? &layout_.plt_got
                          : name == ".plt.sec"     ? &layout_.plt_sec
                                                   : nullptr;
    if (section == nullptr || section->present()) return;
    if (header.sh_offset > file_.size() || header.sh_size > file_.size() - header.sh_offset) return;
    *section = {header.sh_offset, header.sh_addr, header.sh_size,
                (header.sh_flags & SHF_COMPRESSED) != 0};
  }

  // A name, zeros up to a multiple of four, a CRC.
  void take_debug_link(const Elf64_Shdr& header) {
    if (header.sh_size > 512) return;
    auto block = file_.block(header.sh_offset, header.sh_size);
    if (!block) return;
    const auto* text = reinterpret_cast<const char*>(block->view().data());
    const std::string_view name(text, ::strnlen(text, block->view().size()));
    std::uint32_t crc = 0;
    if (name.empty() || name.size() > 255 || name.find('/') != std::string_view::npos ||
        name == "." || name == ".." || !take(block->view(), (name.size() + 4) / 4 * 4, crc)) {
      return;
    }
    layout_.debug_link = name;
    layout_.debug_link_crc = crc;
  }

  // Without section headers the frames are found as a running program finds them: the header's pointer
  // to them is almost always a 32-bit distance. They end somewhere in their segment.
  void find_frames_by_segment() {
    std::uint8_t head[8] = {};
    if (frame_header_.p_filesz < sizeof head || !file_.read(frame_header_.p_offset, head)) return;
    constexpr std::uint8_t kRelativeSigned4 = 0x1b;
    if (head[0] != 1 || head[1] != kRelativeSigned4) return;
    std::int32_t distance = 0;
    std::memcpy(&distance, head + 4, sizeof distance);
    const std::uint64_t address =
        frame_header_.p_vaddr + 4 + static_cast<std::uint64_t>(std::int64_t{distance});
    for (const ElfSegment& segment : layout_.segments) {
      const std::uint64_t inside = address - segment.address;
      if (address < segment.address || inside >= segment.file_size) continue;
      if (segment.offset + inside > file_.size()) return;
      layout_.eh_frame = {
          segment.offset + inside, address,
          std::min(segment.file_size - inside, file_.size() - segment.offset - inside)};
      layout_.eh_frame_by_segment = true;
      return;
    }
  }

  const ByteSource& file_;
  Elf64_Ehdr header_{};
  Elf64_Phdr frame_header_{};
  ElfLayout layout_;
};

}  // namespace

std::optional<std::uint64_t> ElfLayout::code_base() const {
  std::optional<std::uint64_t> base;
  for (const ElfSegment& segment : segments) {
    if (segment.executable) base = std::min(base.value_or(segment.address), segment.address);
  }
  return base;
}

std::uint64_t ElfLayout::code_end() const {
  std::uint64_t end = 0;
  for (const ElfSegment& segment : segments) {
    if (segment.executable) end = std::max(end, segment.address + segment.memory_size);
  }
  return end;
}

bool ElfLayout::is_code(std::uint64_t begin, std::uint64_t end) const {
  return std::any_of(segments.begin(), segments.end(), [&](const ElfSegment& segment) {
    return segment.executable && begin >= segment.address && begin < end &&
           end <= segment.address + segment.memory_size;
  });
}

std::optional<std::uint64_t> ElfLayout::bias(std::uint64_t start, std::uint64_t offset) const {
  // A mapping begins with the page that its segment begins in, or inside the segment where mprotect
  // split it. Two segments can share a page: the one that begins there goes first.
  const ElfSegment* found = nullptr;
  for (const ElfSegment& segment : segments) {
    if (!segment.executable) continue;
    if (offset < page_of(segment.offset) || offset >= segment.offset + segment.file_size) continue;
    if (page_of(segment.offset) == offset) {
      found = &segment;
      break;
    }
    if (found == nullptr) found = &segment;
  }
  if (found == nullptr) return std::nullopt;
  return start - offset + found->offset - found->address;
}

Result<ElfLayout> read_elf_layout(const ByteSource& file) { return LayoutReader(file).read(); }

}  // namespace dynprof
