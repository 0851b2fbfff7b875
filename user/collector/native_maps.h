// Puts unwind tables and address spaces where the kernel side looks for them: each becomes a BPF array
// of exactly its size, filled through a mapping of its memory and then put into a slot of the maps
// `unwind_tables` and `native_spaces` (bpf/unwind.bpf.h). What is in a slot is never changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bpf/events.h"
#include "symbolizer/base/result.h"
#include "user/unwind_tables/unwind_table.h"

namespace dynprof {

class NativeMaps {
 public:
  // Descriptors of the two maps; they stay the caller's and must outlive this.
  NativeMaps(int unwind_tables, int native_spaces) : tables_(unwind_tables), spaces_(native_spaces) {}

  // Bytes of kernel memory it takes.
  Result<std::size_t> set_table(std::uint32_t slot, std::uint32_t serial, const UnwindTable& table);
  // `content` is a number that no other content of any slot has had. In order of address; at most
  // DP_MAX_NATIVE_MAPPINGS.
  Result<void> set_space(std::uint32_t slot, std::uint32_t owner, std::uint64_t content,
                         std::span<const dp_native_mapping> mappings);
  void clear_table(std::uint32_t slot);
  void clear_space(std::uint32_t slot);

 private:
  int tables_;
  int spaces_;
};

}  // namespace dynprof
