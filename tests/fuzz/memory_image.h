// Pieces of a process's memory as the bytes of a file: what the fuzz target for objects in another
// process reads, and tests/fuzz/seeds.py writes.
//   header   u8 minor version of CPython - 10, u8 kind, 6 bytes of nothing, then five u64: the root,
//            &PyUnicode_Type, &PyCode_Type, None, &PyLong_Type
//   pieces   u64 address, u32 size, the bytes; until the end
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "user/target/remote_memory.h"

namespace dynprof {

struct MemoryImageHeader {
  std::uint8_t version = 0;
  std::uint8_t kind = 0;
  std::uint8_t unused[6] = {};
  std::uint64_t root = 0;
  std::uint64_t str_type = 0;
  std::uint64_t code_type = 0;
  std::uint64_t none = 0;
  std::uint64_t long_type = 0;
};
static_assert(sizeof(MemoryImageHeader) == 48);

// What is not in a piece cannot be read.
class MemoryImage final : public RemoteMemory {
 public:
  explicit MemoryImage(std::span<const std::uint8_t> bytes) {
    constexpr std::size_t kHead = 12;
    while (bytes.size() > kHead && pieces_.size() < 4096) {
      std::uint64_t address = 0;
      std::uint32_t size = 0;
      std::memcpy(&address, bytes.data(), 8);
      std::memcpy(&size, bytes.data() + 8, 4);
      bytes = bytes.subspan(kHead);
      const auto piece = bytes.first(std::min<std::size_t>(size, bytes.size()));
      pieces_[address] = piece;
      bytes = bytes.subspan(piece.size());
    }
  }

  void read_many(std::span<RemoteRange> ranges) override {
    for (RemoteRange& range : ranges) {
      range.done = 0;
      auto piece = pieces_.upper_bound(range.address);
      if (piece == pieces_.begin() || range.into.empty()) continue;
      --piece;
      const std::uint64_t offset = range.address - piece->first;
      if (offset >= piece->second.size()) continue;
      range.done = std::min<std::size_t>(range.into.size(), piece->second.size() - offset);
      std::memcpy(range.into.data(), piece->second.data() + offset, range.done);
    }
  }

 private:
  std::map<std::uint64_t, std::span<const std::uint8_t>> pieces_;
};

}  // namespace dynprof
