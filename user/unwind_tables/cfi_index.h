// The entries of .eh_frame and .debug_frame: which code each FDE describes, and where its program and
// its CIE's lie. Nothing is run yet. Two linear passes, whatever the section says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "user/unwind_tables/byte_source.h"
#include "user/unwind_tables/elf_layout.h"

namespace dynprof {

// Why entries are left out of a table. DYNPROF_SKIP(id, name)
#define DYNPROF_CFI_SKIPS(DYNPROF_SKIP)                                                \
  DYNPROF_SKIP(kDamaged, "damaged") /* a length or field that does not fit */          \
  DYNPROF_SKIP(kNoCie, "no_cie")    /* an FDE without a CIE in its section */          \
  DYNPROF_SKIP(kNotCode, "not_code")                                                   \
  DYNPROF_SKIP(kOverlap, "overlap") /* of FDEs for the same code, all but the first */ \
  DYNPROF_SKIP(kLimit, "limit")

enum class CfiSkip : std::uint8_t {
#define DYNPROF_SKIP_ID(id, name) id,
  DYNPROF_CFI_SKIPS(DYNPROF_SKIP_ID)
#undef DYNPROF_SKIP_ID
};
inline constexpr std::size_t kCfiSkipCount = static_cast<std::size_t>(CfiSkip::kLimit) + 1;
using CfiSkips = std::array<std::uint32_t, kCfiSkipCount>;
inline std::uint32_t& count_of(CfiSkips& skips, CfiSkip why) {
  return skips[static_cast<std::size_t>(why)];
}

struct FrameSection {
  ByteBlock data;
  std::uint64_t address = 0;
  bool is_eh = true;  // .eh_frame, else .debug_frame
  // Found without a section header: it ends at its terminator.
  bool open_ended = false;
};

// A common information entry. One that could not be understood stays, so that its FDEs can be said to
// be unsupported.
struct CfiCie {
  bool usable = false;
  bool signal_frame = false;
  bool augmented = false;  // FDEs have augmentation data of their own
  std::uint8_t encoding = 0;
  std::uint8_t section = 0;
  std::uint64_t code_alignment = 1;
  std::int64_t data_alignment = 1;
  std::uint32_t program_begin = 0;  // offsets in the section
  std::uint32_t program_end = 0;
};

// A frame description entry: `size` bytes of code from `begin` (counted from the file's code base).
struct CfiFde {
  std::uint32_t begin = 0;
  std::uint32_t size = 0;
  std::uint32_t cie = 0;
  std::uint32_t program_begin = 0;
  std::uint32_t program_end = 0;
};

inline constexpr std::size_t kMaxCies = std::size_t{1} << 16;  // .debug_frame: one per unit
inline constexpr std::size_t kMaxFdes = std::size_t{1} << 21;  // libtorch_cpu.so has 335,000
inline constexpr std::uint64_t kMaxFrameSection = 64ULL << 20;

struct CfiIndex {
  std::vector<CfiCie> cies;
  std::vector<CfiFde> fdes;
  CfiSkips skipped{};
};

// Adds the entries of `section`, which is the file's number `number`, for code of `layout`.
void index_section(const FrameSection& section, std::uint8_t number, const ElfLayout& layout,
                   CfiIndex& index);

}  // namespace dynprof
