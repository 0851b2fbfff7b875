#include "user/collector/native_maps.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "symbolizer/base/unique_fd.h"

namespace dynprof {
namespace {

constexpr std::size_t kPage = 4096;

// The memory of an array that was just made.
class MappedArray {
 public:
  MappedArray(int map, std::size_t bytes)
      : bytes_((bytes + kPage - 1) / kPage * kPage),
        memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0)) {}
  ~MappedArray() {
    if (*this) munmap(memory_, bytes_);
  }
  MappedArray(const MappedArray&) = delete;
  MappedArray& operator=(const MappedArray&) = delete;
  explicit operator bool() const { return memory_ != MAP_FAILED; }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  std::size_t bytes_;
  void* memory_;
};

Error map_error(const char* what, int number) {
  Error e = error(std::string(what) + ": " + errno_text(number));
  e.errno_value = number;
  return e;
}

// An array of `count` values, filled by `fill`, put into a slot.
template <class T, class Fill>
Result<void> publish(int outer, std::uint32_t slot, const char* name, std::size_t count,
                     const Fill& fill) {
  LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_INNER_MAP | BPF_F_MMAPABLE);
  UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, name, sizeof(std::uint32_t), sizeof(T),
                              static_cast<std::uint32_t>(count), &options));
  if (!map) return map_error("cannot make a BPF map", errno);
  {
    MappedArray array(map.get(), count * sizeof(T));
    if (!array) return map_error("cannot map the memory of a BPF map", errno);
    fill(array.as<T>());
  }
  int fd = map.get();
  if (bpf_map_update_elem(outer, &slot, &fd, BPF_ANY))
    return map_error("cannot put a BPF map into another", errno);
  return {};
}

}  // namespace

Result<std::size_t> NativeMaps::set_table(std::uint32_t slot, std::uint32_t serial,
                                          const UnwindTable& table) {
  const std::size_t count = table.rows.size() + DP_UNWIND_HEADER_ROWS;
  TRY(publish<dp_unwind_row>(tables_, slot, "unwind_rows", count, [&](dp_unwind_row* rows) {
    rows[0] = {static_cast<std::uint32_t>(table.rows.size()), serial};
    rows[1] = {static_cast<std::uint32_t>(table.base), static_cast<std::uint32_t>(table.base >> 32)};
    std::copy(table.rows.begin(), table.rows.end(), rows + DP_UNWIND_HEADER_ROWS);
  }));
  return count * sizeof(dp_unwind_row);
}

Result<void> NativeMaps::set_space(std::uint32_t slot, std::uint32_t owner, std::uint64_t content,
                                   std::span<const dp_native_mapping> mappings) {
  return publish<dp_native_mapping>(
      spaces_, slot, "native_mappings", mappings.size() + 1, [&](dp_native_mapping* entries) {
        entries[0] = {.start = owner, .end = mappings.size(), .bias = content, .table = 0, .serial = 0};
        std::copy(mappings.begin(), mappings.end(), entries + 1);
      });
}

void NativeMaps::clear_table(std::uint32_t slot) { bpf_map_delete_elem(tables_, &slot); }

void NativeMaps::clear_space(std::uint32_t slot) { bpf_map_delete_elem(spaces_, &slot); }

}  // namespace dynprof
