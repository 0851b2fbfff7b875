// The unwind table of one ELF file: rows of bpf/unwind_format.h made from .eh_frame, .debug_frame (in
// the file, or in its separate debug file where the file itself has next to nothing), and for a
// procedure linkage table without a description, from what the linkers put there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bpf/unwind_format.h"
#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "user/unwind_tables/byte_source.h"
#include "user/unwind_tables/cfi_index.h"
#include "user/unwind_tables/elf_layout.h"

namespace dynprof {

struct UnwindStats {
  std::uint32_t cies = 0;
  std::uint32_t fdes = 0;  // that rows were made from
  CfiSkips skipped{};      // entries left out, by CfiSkip
  // Rows by their enum dp_unwind_reason.
  std::array<std::uint32_t, DP_UNWIND_REASON_COUNT> unsupported{};
  std::uint32_t rbp_lost = 0;     // other rows after which rbp is not known
  std::uint32_t synthesized = 0;  // linkage tables described by us
  std::uint32_t unsupported_rows() const;
};

struct UnwindTable {
  std::string build_id;              // hex, "" when the file has none
  std::uint64_t base = 0;            // address in the file that row.pc counts from
  std::vector<ElfSegment> segments;  // executable ones
  std::vector<dp_unwind_row> rows;   // see bpf/unwind_format.h; never empty
  UnwindStats stats;
  bool from_cache = false;

  // The rule for an address in the file; DP_CFA_NONE outside of all rows. What the BPF side does.
  std::uint32_t rule_at(std::uint64_t address) const;
};

// Where a separate debug file is looked for: in the target's own file system, below `root` (an open
// directory), at /usr/lib/debug and beside `path` as the target knows the file.
struct DebugFileSearch {
  int root = -1;
  std::string path;
};

struct UnwindOptions {
  DebugFileSearch debug_files;
  std::size_t max_rows = DP_UNWIND_MAX_ROWS;
  // Building ends with an error soon after this becomes true.
  const std::atomic<bool>* cancelled = nullptr;
  // ... or soon after its time is over. What is read is paid by the ByteSource.
  ReadBudget* budget = nullptr;
};

// The layout of a file and its unwind information, read but not executed. The bytes of ByteSources that
// were views must outlive it.
struct UnwindInput {
  ElfLayout layout;
  std::vector<FrameSection> sections;
  // First bytes of the linkage tables' second entry (which identify their kind), 0 where there are none.
  std::array<std::uint8_t, 8> plt_entry{};

  // Says whether a table made earlier is still this file's. The seed makes it impossible to prepare
  // another file with the same one.
  std::uint64_t fingerprint(std::uint64_t seed) const;
};

Result<UnwindInput> read_unwind_input(const ByteSource& file, const UnwindOptions& options = {});

// The error says why there is no table, without a name.
Result<UnwindTable> build_unwind_table(const UnwindInput& input, const UnwindOptions& options = {});
Result<UnwindTable> build_unwind_table(const ByteSource& file, const UnwindOptions& options = {});

}  // namespace dynprof
