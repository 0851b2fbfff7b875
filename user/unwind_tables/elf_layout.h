// What an unwind table needs to know of an ELF file: where code is loaded, where the unwind
// information is, and its identity. Read from hostile files: every count and size is bounded, and
// nothing outside of the file is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "user/unwind_tables/byte_source.h"

namespace dynprof {

// One PT_LOAD. `offset` in the file, the rest in the file's own address space.
struct ElfSegment {
  std::uint64_t offset = 0;
  std::uint64_t address = 0;
  std::uint64_t file_size = 0;
  std::uint64_t memory_size = 0;
  bool executable = false;
};

struct ElfSection {
  std::uint64_t offset = 0;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  bool compressed = false;  // SHF_COMPRESSED
  bool present() const { return size != 0; }
};

struct ElfLayout {
  bool fixed_address = false;        // ET_EXEC: loaded where its addresses say
  std::uint64_t entry = 0;           // where a program begins; 0: nowhere
  std::vector<ElfSegment> segments;  // PT_LOAD, in the order of the file
  std::string build_id;              // lower-case hex, "" when there is none
  ElfSection eh_frame;               // .eh_frame, by section or by PT_GNU_EH_FRAME
  bool eh_frame_by_segment = false;  // the latter: its size is the rest of the segment
  ElfSection debug_frame;
  ElfSection debug_info;  // DWARF about its source
  ElfSection plt, plt_got, plt_sec;
  std::string debug_link;  // a file name, never with a slash in it
  std::uint32_t debug_link_crc = 0;

  // Lowest address of executable segments; rows count from here. nullopt: no code.
  std::optional<std::uint64_t> code_base() const;
  std::uint64_t code_end() const;  // one past the highest
  bool is_code(std::uint64_t begin, std::uint64_t end) const;

  // Address in the process minus address in the file, for an executable mapping of this file that
  // begins at `start` and shows the file from `offset` on: by the segment that holds the offset.
  std::optional<std::uint64_t> bias(std::uint64_t start, std::uint64_t offset) const;
};

// 64-bit little-endian x86-64 only. The error says why not, without a name.
Result<ElfLayout> read_elf_layout(const ByteSource& file);

}  // namespace dynprof
