// Another process's memory, made of pieces a test puts there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "user/target/remote_memory.h"

namespace dynprof::testing {

class FakeMemory final : public RemoteMemory {
 public:
  void put(std::uint64_t address, std::span<const std::byte> bytes) {
    pieces_[address].assign(bytes.begin(), bytes.end());
  }
  void allocate(std::uint64_t address, std::size_t size) { pieces_[address].resize(size); }
  void free(std::uint64_t address) { pieces_.erase(address); }
  template <class T>
  void write(std::uint64_t address, T value) {
    auto piece = std::prev(pieces_.upper_bound(address));
    std::size_t offset = address - piece->first;
    if (piece->second.size() < offset + sizeof value) piece->second.resize(offset + sizeof value);
    std::memcpy(piece->second.data() + offset, &value, sizeof value);
  }

  // Called before each read_many with its number from 1: a test changes memory under the reader.
  std::function<void(int)> before_read;
  // Called after each range is read, with its address.
  std::function<void(std::uint64_t)> after_range;
  int reads = 0;

  void read_many(std::span<RemoteRange> ranges) override {
    ++reads;
    if (before_read) before_read(reads);
    for (RemoteRange& range : ranges) {
      range.done = 0;
      auto piece = pieces_.upper_bound(range.address);
      if (piece == pieces_.begin() || range.into.empty()) continue;
      --piece;
      std::uint64_t offset = range.address - piece->first;
      if (offset >= piece->second.size()) continue;
      range.done = std::min<std::size_t>(range.into.size(), piece->second.size() - offset);
      std::memcpy(range.into.data(), piece->second.data() + offset, range.done);
      if (after_range) after_range(range.address);
    }
  }

 private:
  std::map<std::uint64_t, std::vector<std::byte>> pieces_;
};

}  // namespace dynprof::testing
