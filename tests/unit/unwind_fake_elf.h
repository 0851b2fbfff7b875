// Small ELF files with call frame information put together by hand, for tests and the fuzz target.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "user/unwind_tables/cfi_program.h"
#include "user/unwind_tables/unwind_table.h"

namespace dynprof::fake_elf {

using Bytes = std::vector<std::uint8_t>;

inline void put(Bytes& out, const Bytes& more) { out.insert(out.end(), more.begin(), more.end()); }
template <class T>
void put_value(Bytes& out, T value) {
  const auto* raw = reinterpret_cast<const std::uint8_t*>(&value);
  out.insert(out.end(), raw, raw + sizeof value);
}

inline Bytes uleb(std::uint64_t value) {
  Bytes out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::uint8_t>(value | 0x80));
  out.push_back(static_cast<std::uint8_t>(value));
  return out;
}

inline Bytes sleb(std::int64_t value) {
  Bytes out;
  for (;;) {
    const auto byte = static_cast<std::uint8_t>(value & 0x7f);
    value >>= 7;
    if ((value == 0 && (byte & 0x40) == 0) || (value == -1 && (byte & 0x40) != 0)) {
      out.push_back(byte);
      return out;
    }
    out.push_back(byte | 0x80);
  }
}

inline Bytes join(std::initializer_list<Bytes> parts) {
  Bytes out;
  for (const Bytes& part : parts) put(out, part);
  return out;
}

// def_cfa rsp+8; the return address at CFA-8.
inline Bytes usual_cie_program() { return {0x0c, 7, 8, 0x80 | 16, 1}; }

struct Fde {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  Bytes program;
  std::size_t cie = 0;  // number of the CIE
};

struct Cie {
  std::string augmentation = "zR";
  Bytes program = usual_cie_program();
  std::uint8_t version = 1;
  std::uint8_t encoding = 0x1b;  // signed 32-bit distance
};

// Entries in the order of the CIEs, then the FDEs. `is_eh` false: .debug_frame, absolute addresses.
class Frames {
 public:
  explicit Frames(std::uint64_t address, bool is_eh = true) : address_(address), is_eh_(is_eh) {}

  std::size_t cie(const Cie& cie) {
    Bytes body;
    put_value<std::uint32_t>(body, is_eh_ ? 0 : 0xffffffffu);
    body.push_back(cie.version);
    put(body, Bytes(cie.augmentation.begin(), cie.augmentation.end()));
    body.push_back(0);
    if (cie.version == 4) put(body, {8, 0});
    put(body, {1, 0x78, 16});  // alignments 1 and -8, the return address's column
    if (cie.augmentation.starts_with("z")) {
      const bool encoded = cie.augmentation.find('R') != std::string::npos;
      body.push_back(encoded ? 1 : 0);
      if (encoded) body.push_back(cie.encoding);
    }
    put(body, cie.program);
    cies_.push_back({out.size(), cie});
    entry(body);
    return cies_.size() - 1;
  }

  void fde(const Fde& fde) {
    const auto& [at, cie] = cies_.at(fde.cie);
    Bytes body;
    put_value(body, static_cast<std::uint32_t>(is_eh_ ? out.size() + 4 - at : at));
    if (is_eh_ && cie.encoding == 0x1b) {
      put_value(body, static_cast<std::uint32_t>(fde.begin - (address_ + out.size() + 8)));
      put_value(body, static_cast<std::uint32_t>(fde.size));
    } else {
      put_value(body, fde.begin);
      put_value(body, fde.size);
    }
    if (cie.augmentation.starts_with("z")) body.push_back(0);
    put(body, fde.program);
    entry(body);
  }

  void entry(const Bytes& body) {
    put_value(out, static_cast<std::uint32_t>(body.size()));
    put(out, body);
  }

  Bytes out;

 private:
  std::uint64_t address_;
  bool is_eh_;
  std::vector<std::pair<std::size_t, Cie>> cies_;
};

inline constexpr std::uint64_t kCodeAddress = 0x1000;
inline constexpr std::uint64_t kCodeSize = 0x10000;
inline constexpr std::uint64_t kFramesAddress = 0x20000;
inline constexpr std::uint64_t kFramesOffset = 0x400;

struct Section {
  std::string name;
  std::uint64_t address = 0;
  Bytes content;
};

struct File {
  Bytes build_id;
  std::vector<Section> sections;  // each also gets file space
  bool section_headers = true;
  bool frame_header = false;  // PT_GNU_EH_FRAME for the first section
  bool fixed = false;
  std::uint64_t code = kCodeAddress;
};

// Segments: code (without content), one read-only over the sections.
inline Bytes make(const File& file) {
  Bytes content(kFramesOffset, 0);
  Bytes notes;
  if (!file.build_id.empty()) {
    put_value<std::uint32_t>(notes, 4);
    put_value(notes, static_cast<std::uint32_t>(file.build_id.size()));
    put_value<std::uint32_t>(notes, NT_GNU_BUILD_ID);
    put(notes, {'G', 'N', 'U', 0});
    put(notes, file.build_id);
  }
  std::vector<Elf64_Shdr> headers(1, Elf64_Shdr{});
  std::string names(1, '\0');
  const auto add = [&](const std::string& name, std::uint64_t address, const Bytes& bytes) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<Elf64_Word>(names.size());
    header.sh_type = SHT_PROGBITS;
    header.sh_addr = address;
    header.sh_offset = content.size();
    header.sh_size = bytes.size();
    names += name + '\0';
    headers.push_back(header);
    put(content, bytes);
  };
  for (const Section& section : file.sections) add(section.name, section.address, section.content);
  const std::uint64_t end_of_sections = content.size();
  std::vector<Elf64_Phdr> segments;
  const auto segment = [&](std::uint32_t type, std::uint32_t flags, std::uint64_t offset,
                           std::uint64_t address, std::uint64_t size) {
    segments.push_back({type, flags, offset, address, address, size, size, 0x1000});
  };
  segment(PT_LOAD, PF_R | PF_X, 0, file.code, kCodeSize);
  segment(PT_LOAD, PF_R, kFramesOffset, kFramesAddress, end_of_sections - kFramesOffset);
  if (!notes.empty()) {
    segment(PT_NOTE, PF_R, content.size(), 0, notes.size());
    put(content, notes);
  }
  if (file.frame_header) {
    const std::uint64_t address = kFramesAddress + (content.size() - kFramesOffset);
    segment(PT_GNU_EH_FRAME, PF_R, content.size(), address, 8);
    put(content, {1, 0x1b, 0xff, 0xff});
    put_value(content, static_cast<std::uint32_t>(kFramesAddress - (address + 4)));
  }
  add(".shstrtab", 0, {});
  headers.back().sh_offset = content.size();
  headers.back().sh_size = names.size();
  put(content, Bytes(names.begin(), names.end()));

  Elf64_Ehdr head{};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_ident[EI_DATA] = ELFDATA2LSB;
  head.e_type = file.fixed ? ET_EXEC : ET_DYN;
  head.e_machine = EM_X86_64;
  head.e_phoff = sizeof head;
  head.e_phentsize = sizeof(Elf64_Phdr);
  head.e_phnum = static_cast<Elf64_Half>(segments.size());
  if (file.section_headers) {
    head.e_shoff = content.size();
    head.e_shentsize = sizeof(Elf64_Shdr);
    head.e_shnum = static_cast<Elf64_Half>(headers.size());
    head.e_shstrndx = static_cast<Elf64_Half>(headers.size() - 1);
    const auto* raw = reinterpret_cast<const std::uint8_t*>(headers.data());
    put(content, Bytes(raw, raw + headers.size() * sizeof headers[0]));
  }
  std::memcpy(content.data(), &head, sizeof head);
  std::memcpy(content.data() + sizeof head, segments.data(), segments.size() * sizeof segments[0]);
  return content;
}

// A file whose .eh_frame has these FDEs of one usual CIE.
inline File file_of(const std::vector<Fde>& fdes, const Cie& cie = {}) {
  Frames frames(kFramesAddress);
  frames.cie(cie);
  for (const Fde& fde : fdes) frames.fde(fde);
  File file;
  file.sections.push_back({".eh_frame", kFramesAddress, frames.out});
  return file;
}

inline Result<UnwindTable> table_of(const Bytes& image, const UnwindOptions& options = {}) {
  return build_unwind_table(ByteSource::of_bytes(image), options);
}

// What the table has for an address, and instructions that put the frame at an offset.
inline std::uint32_t kind_at(const UnwindTable& table, std::uint64_t address) {
  return dp_unwind_kind(table.rule_at(address));
}
inline std::int32_t offset_at(const UnwindTable& table, std::uint64_t address) {
  return dp_unwind_offset(table.rule_at(address));
}
inline Bytes frame_of(std::uint8_t offset) { return {0x0e, offset}; }

}  // namespace dynprof::fake_elf
