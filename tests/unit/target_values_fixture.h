// Objects and types of CPython in a fake memory, for the tests of remote_values.h.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/target_fake_memory.h"
#include "user/target/remote_values.h"

namespace dynprof {

inline constexpr std::uint64_t kHeapType = 1ULL << 9;
inline constexpr std::uint64_t kManagedDict = 1ULL << 4;
inline constexpr std::uint64_t kInlineValues = 1ULL << 2;

// Objects and types as CPython 3.11 lays them out.
class TargetValues : public ::testing::Test {
 protected:
  TargetValues() : TargetValues(11) {}
  explicit TargetValues(int minor)
      : layout_(*measured_layout(python_version(3, minor))), objects_(memory_, layout_) {
    meta_ = next(400);
    memory_.write(meta_ + 8, meta_);
    memory_.write<std::uint64_t>(meta_ + 168, 1ULL << 31);
    str_ = type("str", 1ULL << 28, 80);
    int_ = type("int", 1ULL << 24, 24);
    list_ = type("list", 1ULL << 25, 40);
    tuple_ = type("tuple", 1ULL << 26, 24);
    dict_ = type("dict", 1ULL << 29, 64);
    objects_.set_str_type(str_);
  }

  std::uint64_t next(std::size_t size) {
    std::uint64_t address = next_ + 64;  // room for what lies in front of an object
    next_ += (size + 64 + 15) / 16 * 16 + 4096;
    memory_.allocate(address - 64, size + 64);
    return address;
  }
  std::uint64_t type(const std::string& name, std::uint64_t flags, std::int64_t basicsize,
                     std::uint64_t base = 0) {
    std::uint64_t text = next(name.size() + 1);
    for (std::size_t i = 0; i < name.size(); ++i) memory_.write(text + i, name[i]);
    std::uint64_t at = next(904);
    memory_.write(at + 8, meta_);
    memory_.write(at + 24, text);
    memory_.write(at + 32, basicsize);
    memory_.write(at + 168, flags);
    memory_.write(at + 256, base);
    return at;
  }
  std::uint64_t object(std::uint64_t type, std::size_t size) {
    std::uint64_t at = next(size);
    memory_.write(at + 8, type);
    return at;
  }
  std::uint64_t integer(std::uint32_t value) {
    std::uint64_t at = object(int_, 32);
    memory_.write<std::int64_t>(at + 16, 1);
    memory_.write(at + 24, value);
    return at;
  }
  std::uint64_t text(const std::string& value) {
    std::uint64_t at = object(str_, layout_.unicode_ascii_data + value.size() + 1);
    memory_.write<std::uint64_t>(at + 16, value.size());
    memory_.write<std::uint32_t>(at + 32, (1 | 8 | 16) << 2);
    for (std::size_t i = 0; i < value.size(); ++i)
      memory_.write(at + layout_.unicode_ascii_data + i, value[i]);
    return at;
  }
  std::uint64_t list(const std::vector<std::uint64_t>& items) {
    std::uint64_t table = next(items.size() * 8);
    for (std::size_t i = 0; i < items.size(); ++i) memory_.write(table + 8 * i, items[i]);
    std::uint64_t at = object(list_, 40);
    memory_.write<std::uint64_t>(at + 16, items.size());
    memory_.write(at + 24, table);
    return at;
  }
  // Keys of 3.11: hash, key, value.
  std::uint64_t keys(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& entries) {
    std::uint64_t at = next(32 + 8 + 24 * entries.size());
    memory_.write<std::uint8_t>(at + 8, 3);
    memory_.write<std::uint8_t>(at + 9, 3);
    memory_.write<std::uint64_t>(at + 24, entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      memory_.write(at + 40 + 24 * i + 8, entries[i].first);
      memory_.write(at + 40 + 24 * i + 16, entries[i].second);
    }
    return at;
  }
  std::uint64_t dict(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& entries) {
    std::uint64_t at = object(dict_, 64);
    memory_.write<std::uint64_t>(at + 16, entries.size());
    memory_.write(at + 32, keys(entries));
    memory_.write<std::uint64_t>(at + 40, 0);
    return at;
  }
  RemoteValues values() { return RemoteValues(objects_, runtime_); }

  dynprof::testing::FakeMemory memory_;
  const PythonLayout& layout_;
  RemoteObjects objects_;
  PythonRuntime runtime_;
  std::uint64_t next_ = 0x100000;
  std::uint64_t meta_ = 0, str_ = 0, int_ = 0, list_ = 0, tuple_ = 0, dict_ = 0;
};

class TargetValues312 : public TargetValues {
 protected:
  TargetValues312() : TargetValues(12) {}
};
class TargetValues313 : public TargetValues {
 protected:
  TargetValues313() : TargetValues(13) {}
};

}  // namespace dynprof
