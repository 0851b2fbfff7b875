#include <zlib.h>
#include <zstd.h>

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "symbolizer/base/hash.h"
#include "user/unwind_tables/debug_file.h"
#include "user/unwind_tables/unwind_table.h"

namespace dynprof {
namespace {

// crt1.o and the linker give every program this many bytes of .eh_frame, whatever its own code has.
constexpr std::uint64_t kStartupFrames = 512;

std::optional<ByteBlock> inflate_section(ByteView stored) {
  Elf64_Chdr header{};
  if (stored.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, stored.data(), sizeof header);
  stored = stored.subspan(sizeof header);
  if (header.ch_size > kMaxFrameSection) return std::nullopt;
  const auto size = static_cast<std::size_t>(header.ch_size);
  auto bytes = std::make_unique_for_overwrite<std::uint8_t[]>(size);
  if (header.ch_type == ELFCOMPRESS_ZLIB) {
    uLongf got = size;
    if (::uncompress(bytes.get(), &got, stored.data(), stored.size()) != Z_OK || got != size) {
      return std::nullopt;
    }
  } else {
    constexpr std::uint32_t kZstd = 2;  // ELFCOMPRESS_ZSTD, glibc 2.36's elf.h lacks it
    if (header.ch_type != kZstd ||
        ::ZSTD_decompress(bytes.get(), size, stored.data(), stored.size()) != size) {
      return std::nullopt;
    }
  }
  return ByteBlock(std::move(bytes), size);
}

void add_section(const ByteSource& file, const ElfSection& section, bool is_eh, bool open_ended,
                 std::vector<FrameSection>& sections) {
  if (!section.present() || section.size > kMaxFrameSection) return;
  auto data = file.block(section.offset, section.size);
  if (data && section.compressed) data = inflate_section(data->view());
  if (!data) return;
  sections.push_back({*std::move(data), section.address, is_eh, open_ended});
}

void add_debug_file(const DebugFileSearch& search, const ElfLayout& layout, ReadBudget* budget,
                    std::vector<FrameSection>& sections) {
  auto found = find_debug_file(
      search.root, search.path, layout,
      [](const ElfLayout& debug) { return debug.debug_frame.present(); }, budget);
  if (found) add_section(found->file, found->layout.debug_frame, false, false, sections);
}

}  // namespace

Result<UnwindInput> read_unwind_input(const ByteSource& file, const UnwindOptions& options) {
  UnwindInput input;
  ASSIGN_OR_RETURN(input.layout, read_elf_layout(file));
  const ElfLayout& layout = input.layout;
  const bool open_ended = layout.eh_frame_by_segment;
  add_section(file, layout.eh_frame, true, open_ended, input.sections);
  add_section(file, layout.debug_frame, false, false, input.sections);
  if (layout.eh_frame.size < kStartupFrames && !layout.debug_frame.present()) {
    add_debug_file(options.debug_files, layout, file.budget(), input.sections);
  }
  constexpr std::uint64_t kEntry = 16;
  if (layout.plt.size >= 2 * kEntry) file.read(layout.plt.offset + kEntry, input.plt_entry);
  return input;
}

std::uint64_t UnwindInput::fingerprint(std::uint64_t seed) const {
  std::uint64_t hash = seed;
  const auto add = [&](std::uint64_t value) { hash = hash_u64(hash ^ value) ^ seed; };
  const auto add_section = [&](const ElfSection& section) {
    add(section.address);
    add(section.size);
  };
  for (const ElfSegment& segment : layout.segments) {
    add(segment.offset);
    add(segment.address);
    add(segment.file_size);
    add(segment.memory_size);
    add(segment.executable ? 1 : 0);
  }
  add(layout.entry);
  for (const ElfSection* section : {&layout.plt, &layout.plt_got, &layout.plt_sec}) {
    add_section(*section);
  }
  add(hash_bytes({reinterpret_cast<const char*>(plt_entry.data()), plt_entry.size()}, seed));
  for (const FrameSection& section : sections) {
    const ByteView bytes = section.data.view();
    add(section.address);
    add(section.is_eh ? 1 : 0);
    add(hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, seed));
  }
  return hash;
}

}  // namespace dynprof
