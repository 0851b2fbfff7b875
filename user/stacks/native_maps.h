// Puts unwind tables and address spaces where the kernel side looks for them: each is a BPF array of
// its own in a slot of the maps `unwind_tables` and `native_spaces` (bpf/unwind.bpf.h), written through a
// mapping of its memory.
//
// Putting an array into a slot waits for every CPU (8 to 20 ms on a machine of two): so many go in at
// once, and for spaces there are arrays in place, which are written anew for each process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "bpf/events.h"
#include "symbolizer/base/result.h"
#include "user/unwind_tables/unwind_table.h"

namespace dynprof {

// The memory of a BPF array.
class MappedArray {
 public:
  MappedArray(int map, std::size_t bytes);
  ~MappedArray();
  MappedArray(const MappedArray&) = delete;
  MappedArray& operator=(const MappedArray&) = delete;
  explicit operator bool() const;
  void* data() const { return memory_; }

 private:
  std::size_t bytes_;
  void* memory_;
};

// The content of such an array. `out` has room for NativeMaps::bytes_of(table).
void fill_table(const UnwindTable& table, std::uint32_t serial, dp_unwind_row* out);
// The header and behind it the mappings.
void fill_space(dp_native_mapping* entries, std::uint32_t owner, std::uint64_t content,
                std::span<const dp_native_mapping> mappings);

class NativeMaps {
 public:
  // Descriptors of the two maps; they stay the caller's and must outlive this.
  NativeMaps(int unwind_tables, int native_spaces)
      : tables_(unwind_tables), spaces_(native_spaces) {}

  struct NewTable {
    std::uint32_t slot = 0;
    std::uint32_t serial = 0;
    const UnwindTable* table = nullptr;
  };
  // All or, on an error, perhaps some of them.
  Result<void> set_tables(std::span<const NewTable> tables);
  void clear_tables(std::span<const std::uint32_t> slots);
  // Kernel memory that a table takes.
  static std::size_t bytes_of(const UnwindTable& table);

  // Puts empty arrays, for spaces of up to kReadyMappings, into those of these slots that have none.
  Result<void> make_ready(std::span<const std::uint32_t> slots);
  // `content` is a number, not 0, that no other content of any slot has had. In order of address; at
  // most DP_MAX_NATIVE_MAPPINGS.
  Result<void> set_space(std::uint32_t slot, std::uint32_t owner, std::uint64_t content,
                         std::span<const dp_native_mapping> mappings);
  void clear_space(std::uint32_t slot);

 private:
  static constexpr std::size_t kReadyMappings = 127;  // a page
  struct Space {
    std::size_t room = 0;  // mappings
    std::unique_ptr<MappedArray> array;
    dp_native_mapping* entries() const { return static_cast<dp_native_mapping*>(array->data()); }
  };

  int tables_;
  int spaces_;
  std::map<std::uint32_t, Space> arrays_;  // of native_spaces, by slot
};

}  // namespace dynprof
