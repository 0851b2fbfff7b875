#include "user/stacks/native_maps.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {
namespace {

constexpr std::size_t kPage = 4096;

Error map_error(const char* what, int number) {
  Error e = error(std::string(what) + ": " + errno_text(number));
  e.errno_value = number;
  return e;
}

Result<UniqueFd> make_array(const char* name, std::size_t value_size, std::size_t count) {
  LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_INNER_MAP | BPF_F_MMAPABLE);
  UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, name, sizeof(std::uint32_t),
                              static_cast<std::uint32_t>(value_size),
                              static_cast<std::uint32_t>(count), &options));
  if (!map) return map_error("cannot make a BPF map", errno);
  return map;
}

// An errno, or 0.
int put_some(int outer, std::span<const std::uint32_t> slots,
             std::span<const std::uint32_t> values) {
  auto count = static_cast<std::uint32_t>(slots.size());
  if (bpf_map_update_batch(outer, slots.data(), values.data(), &count, nullptr) == 0) return 0;
  // Kernels before 5.14 know no batches of maps of maps.
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (bpf_map_update_elem(outer, &slots[i], &values[i], BPF_ANY)) return errno;
  return 0;
}

// Before Linux 6.8 a batch waits for an RCU grace period (8 to 20 ms) for each of its elements: 4.4 s for
// 256 of them. Threads that wait at the same time share one.
Result<void> put_into_slots(int outer, std::span<const std::uint32_t> slots,
                            std::span<const UniqueFd> maps) {
  constexpr std::size_t kThreads = 32;
  std::vector<std::uint32_t> values;
  for (const UniqueFd& map : maps) values.push_back(static_cast<std::uint32_t>(map.get()));
  const std::size_t parts = std::min(kThreads, slots.size());
  std::vector<int> problems(parts);
  const auto put = [&](std::size_t part) {
    const std::size_t first = part * slots.size() / parts;
    const std::size_t count = (part + 1) * slots.size() / parts - first;
    problems[part] =
        put_some(outer, slots.subspan(first, count), std::span(values).subspan(first, count));
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t part = 0; part < parts; ++part) {
      if (part + 1 == parts) {
        put(part);
        break;
      }
      try {
        others.emplace_back(put, part);
      } catch (const std::system_error&) {  // no more threads
        put(part);
      }
    }
  }
  for (const int problem : problems)
    if (problem != 0) return map_error("cannot put a BPF map into another", problem);
  return {};
}

// How many pages of pcs its rows are in.
std::size_t pages_of(const UnwindTable& table) {
  return table.rows.empty() ? 0 : (table.rows.back().pc >> DP_UNWIND_PAGE_SHIFT) + std::size_t{1};
}

std::size_t elements_of(const UnwindTable& table) {
  return DP_UNWIND_HEADER_ROWS + table.rows.size() + pages_of(table);
}

// `out`: room for pages_of(table), elements of the same array.
void write_pages(const UnwindTable& table, dp_unwind_row* out) {
  std::size_t row = 0;
  for (std::size_t page = 0; page < pages_of(table); ++page) {
    dp_unwind_page part = {};
    part.first = static_cast<std::uint32_t>(DP_UNWIND_HEADER_ROWS + row);
    while (row < table.rows.size() && table.rows[row].pc >> DP_UNWIND_PAGE_SHIFT == page) ++row;
    part.end = static_cast<std::uint32_t>(DP_UNWIND_HEADER_ROWS + row);
    out[page] = std::bit_cast<dp_unwind_row>(part);
  }
}

}  // namespace

void fill_table(const UnwindTable& table, std::uint32_t serial, dp_unwind_row* out) {
  out[0] = {static_cast<std::uint32_t>(table.rows.size()), serial};
  out[1] = {static_cast<std::uint32_t>(table.base), static_cast<std::uint32_t>(table.base >> 32)};
  std::copy(table.rows.begin(), table.rows.end(), out + DP_UNWIND_HEADER_ROWS);
  write_pages(table, out + DP_UNWIND_HEADER_ROWS + table.rows.size());
}

// The header says that nothing is there while the rest is written, and its content number last that
// it is: the kernel side reads that again behind whatever it read.
void fill_space(dp_native_mapping* entries, std::uint32_t owner, std::uint64_t content,
                std::span<const dp_native_mapping> mappings) {
  std::atomic_ref<__u64> number(entries[0].bias);
  number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::copy(mappings.begin(), mappings.end(), entries + 1);
  entries[0].start = owner;
  entries[0].end = mappings.size();
  number.store(content, std::memory_order_release);
}

MappedArray::MappedArray(int map, std::size_t bytes)
    : bytes_((bytes + kPage - 1) / kPage * kPage),
      memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0)) {}

MappedArray::~MappedArray() {
  if (*this) munmap(memory_, bytes_);
}

MappedArray::operator bool() const { return memory_ != MAP_FAILED; }

std::size_t NativeMaps::bytes_of(const UnwindTable& table) {
  return elements_of(table) * sizeof(dp_unwind_row);
}

Result<void> NativeMaps::set_tables(std::span<const NewTable> tables) {
  std::vector<std::uint32_t> slots;
  std::vector<UniqueFd> maps;
  Result<void> made;
  for (const NewTable& fresh : tables) {
    const UnwindTable& table = *fresh.table;
    auto map = make_array("unwind_rows", sizeof(dp_unwind_row), elements_of(table));
    if (!map) {
      made = map.error();
      break;
    }
    MappedArray array(map->get(), bytes_of(table));
    if (!array) {
      made = map_error("cannot map the memory of a BPF map", errno);
      break;
    }
    fill_table(table, fresh.serial, static_cast<dp_unwind_row*>(array.data()));
    slots.push_back(fresh.slot);
    maps.push_back(*std::move(map));
  }
  TRY(put_into_slots(tables_, slots, maps));
  return made;
}

void NativeMaps::clear_tables(std::span<const std::uint32_t> slots) {
  auto count = static_cast<std::uint32_t>(slots.size());
  if (count == 0 || bpf_map_delete_batch(tables_, slots.data(), &count, nullptr) == 0) return;
  for (std::uint32_t slot : slots) bpf_map_delete_elem(tables_, &slot);
}

Result<void> NativeMaps::make_ready(std::span<const std::uint32_t> slots) {
  std::vector<std::uint32_t> empty;
  std::vector<UniqueFd> maps;
  std::vector<std::unique_ptr<MappedArray>> arrays;
  for (std::uint32_t slot : slots) {
    if (arrays_.contains(slot)) continue;
    ASSIGN_OR_RETURN(UniqueFd map,
                     make_array("native_mappings", sizeof(dp_native_mapping), kReadyMappings + 1));
    arrays.push_back(
        std::make_unique<MappedArray>(map.get(), (kReadyMappings + 1) * sizeof(dp_native_mapping)));
    if (!*arrays.back()) return map_error("cannot map the memory of a BPF map", errno);
    empty.push_back(slot);
    maps.push_back(std::move(map));
  }
  TRY(put_into_slots(spaces_, empty, maps));
  for (std::size_t i = 0; i < empty.size(); ++i)
    arrays_[empty[i]] = {kReadyMappings, std::move(arrays[i])};
  return {};
}

Result<void> NativeMaps::set_space(std::uint32_t slot, std::uint32_t owner, std::uint64_t content,
                                   std::span<const dp_native_mapping> mappings) {
  auto known = arrays_.find(slot);
  if (known != arrays_.end() && known->second.room >= mappings.size()) {
    fill_space(known->second.entries(), owner, content, mappings);
    return {};
  }
  // Libraries come one after the other.
  const std::size_t room = std::max(kReadyMappings, mappings.size() + mappings.size() / 2);
  ASSIGN_OR_RETURN(UniqueFd map,
                   make_array("native_mappings", sizeof(dp_native_mapping), room + 1));
  Space space{room,
              std::make_unique<MappedArray>(map.get(), (room + 1) * sizeof(dp_native_mapping))};
  if (!*space.array) return map_error("cannot map the memory of a BPF map", errno);
  fill_space(space.entries(), owner, content, mappings);
  TRY(put_into_slots(spaces_, {&slot, 1}, {&map, 1}));
  arrays_[slot] = std::move(space);
  return {};
}

void NativeMaps::clear_space(std::uint32_t slot) {
  auto known = arrays_.find(slot);
  if (known == arrays_.end()) return;
  fill_space(known->second.entries(), 0, 0, {});
}

}  // namespace dynprof
