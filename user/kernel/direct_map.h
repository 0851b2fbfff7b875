// Where the kernel maps all of its memory, so that BPF programs can read the target's pages in place
// (bpf/user_memory.bpf.h).
#pragma once

#include <cstdint>

namespace dynprof {

struct DirectMap {
  std::uint64_t base =
      0;  // of physical address 0; 0: not found, or this kernel has no bpf_rdonly_cast
  std::uint64_t physical_mask = 0;  // of an address in a page-table entry
  std::uint32_t levels = 0;         // of page tables
  // Programs that do not use bpf_rdonly_cast: this kernel lacks it, and libbpf may not search its modules.
  bool plain = false;
};

// Tested on this process's memory, by a BPF program that is run once; x86-64, Linux 6.2 and later.
DirectMap find_direct_map();

// Before a skeleton is loaded; only of programs that run with interrupts off.
template <class ReadOnlyData>
void set_direct_map(ReadOnlyData* data, const DirectMap& found) {
  data->direct_map_base = found.base;
  data->direct_map_physical_mask = found.physical_mask;
  data->direct_map_levels = found.levels;
}

}  // namespace dynprof
