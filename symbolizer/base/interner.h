// Equal content, equal id: ids are given in order of first sight. `forget` bounds memory: it drops
// what is remembered but not the numbering, so content seen again then gets a second id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/base/hash.h"

namespace dynprof {

// Open addressing over indexes into an array that the owner keeps. Grows at 2/3 full.
class IndexTable {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  // The index for which equal(index) holds, or kNone: then add(hash) enters `next`.
  template <class Equal>
  std::uint32_t find(std::uint64_t hash, const Equal& equal) const {
    if (slots_.empty()) return kNone;
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t at = hash & mask();; at = (at + 1) & mask()) {
      const Slot& slot = slots_[at];
      if (slot.index == kNone) return kNone;
      if (slot.tag == tag && equal(slot.index)) return slot.index;
    }
  }
  // `rehash(index)` gives the full hash of an entry again.
  template <class Rehash>
  void add(std::uint64_t hash, std::uint32_t index, const Rehash& rehash) {
    if ((used_ + 1) * 3 > slots_.size() * 2) {
      std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
      old.swap(slots_);
      for (const Slot& slot : old) {
        if (slot.index != kNone) place(rehash(slot.index), slot.index);
      }
    }
    place(hash, index);
    ++used_;
  }
  void clear() {
    slots_ = {};
    used_ = 0;
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t index = kNone;
  };
  std::size_t mask() const { return slots_.size() - 1; }
  void place(std::uint64_t hash, std::uint32_t index) {
    std::size_t at = hash & mask();
    while (slots_[at].index != kNone) at = (at + 1) & mask();
    slots_[at] = Slot{static_cast<std::uint32_t>(hash >> 32), index};
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

// Byte strings, kept once. Views stay valid until `forget`.
class BytesInterner {
 public:
  explicit BytesInterner(std::uint32_t first_id) : first_id_(first_id), seed_(random_seed()) {}

  std::uint32_t intern(std::string_view text) {
    const std::uint64_t hash = hash_bytes(text, seed_);
    std::uint32_t index =
        table_.find(hash, [&](std::uint32_t other) { return entries_[other] == text; });
    if (index == IndexTable::kNone) {
      index = static_cast<std::uint32_t>(entries_.size());
      entries_.push_back(store(text));
      table_.add(hash, index,
                 [&](std::uint32_t other) { return hash_bytes(entries_[other], seed_); });
    }
    return first_id_ + index;
  }

  std::uint32_t next_id() const { return first_id_ + static_cast<std::uint32_t>(entries_.size()); }
  // Everything since the last `forget`; the first entry's id is first_id().
  std::span<const std::string_view> entries() const { return entries_; }
  std::uint32_t first_id() const { return first_id_; }
  std::size_t stored_bytes() const {
    return stored_bytes_ + entries_.size() * sizeof(std::string_view);
  }

  void forget() {
    first_id_ = next_id();
    entries_ = {};
    blocks_.clear();
    block_left_ = 0;
    stored_bytes_ = 0;
    table_.clear();
  }

 private:
  std::string_view store(std::string_view text) {
    if (text.empty()) return {};
    if (text.size() > block_left_) {
      block_left_ = text.size() > kBlockBytes ? text.size() : kBlockBytes;
      blocks_.push_back(std::make_unique_for_overwrite<char[]>(block_left_));
      block_at_ = blocks_.back().get();
    }
    char* copy = block_at_;
    std::memcpy(copy, text.data(), text.size());
    block_at_ += text.size();
    block_left_ -= text.size();
    stored_bytes_ += text.size();
    return {copy, text.size()};
  }

  static constexpr std::size_t kBlockBytes = 64 * 1024;
  std::uint32_t first_id_;
  std::uint64_t seed_;
  IndexTable table_;
  std::vector<std::string_view> entries_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* block_at_ = nullptr;
  std::size_t block_left_ = 0;
  std::size_t stored_bytes_ = 0;
};

// Values with ==; Hash gives 64 bits of one.
template <class T, class Hash>
class ValueInterner {
 public:
  explicit ValueInterner(std::uint32_t first_id) : first_id_(first_id) {}

  std::uint32_t intern(const T& value) {
    const std::uint64_t hash = Hash{}(value);
    std::uint32_t index =
        table_.find(hash, [&](std::uint32_t other) { return entries_[other] == value; });
    if (index == IndexTable::kNone) {
      index = static_cast<std::uint32_t>(entries_.size());
      entries_.push_back(value);
      table_.add(hash, index, [&](std::uint32_t other) { return Hash{}(entries_[other]); });
    }
    return first_id_ + index;
  }

  std::uint32_t next_id() const { return first_id_ + static_cast<std::uint32_t>(entries_.size()); }
  std::span<const T> entries() const { return entries_; }
  std::uint32_t first_id() const { return first_id_; }

  void forget() {
    first_id_ = next_id();
    entries_ = {};
    table_.clear();
  }

 private:
  std::uint32_t first_id_;
  IndexTable table_;
  std::vector<T> entries_;
};

}  // namespace dynprof
