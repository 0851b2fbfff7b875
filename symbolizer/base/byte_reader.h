// Reads what ByteWriter wrote, trusting none of it. The first read beyond the end, or of a varint
// that is none, makes the reader fail for good: every later read gives 0. Callers check ok() once
// at the end of a loop that is bounded by something else than what was read.
//
// More than 15 public members: one for each encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace dynprof {

constexpr std::int64_t unzigzag(std::uint64_t value) {
  return static_cast<std::int64_t>((value >> 1) ^ (0 - (value & 1)));
}

class ByteReader {
 public:
  ByteReader() = default;
  explicit ByteReader(std::span<const std::uint8_t> data)
      : at_(data.data()), end_(data.data() + data.size()) {}

  bool ok() const { return ok_; }
  std::size_t remaining() const { return static_cast<std::size_t>(end_ - at_); }
  // All read, and nothing went wrong.
  bool done() const { return ok_ && at_ == end_; }

  std::uint8_t u8() { return static_cast<std::uint8_t>(fixed(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(fixed(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(fixed(4)); }
  std::uint64_t u64() { return fixed(8); }

  std::uint64_t varint() {
    if (at_ < end_ && *at_ < 0x80) return *at_++;
    return long_varint();
  }
  // A varint that must not exceed `max`.
  std::uint64_t varint_up_to(std::uint64_t max) {
    std::uint64_t value = varint();
    if (value <= max) return value;
    fail();
    return 0;
  }
  std::uint32_t varint32() { return static_cast<std::uint32_t>(varint_up_to(0xffffffffu)); }
  std::int64_t signed_varint() { return unzigzag(varint()); }
  std::int32_t signed_varint32() {
    std::int64_t value = signed_varint();
    if (value >= INT32_MIN && value <= INT32_MAX) return static_cast<std::int32_t>(value);
    fail();
    return 0;
  }
  // `base` + a difference, modulo 2^64.
  std::uint64_t plus_difference(std::uint64_t base) {
    return base + static_cast<std::uint64_t>(signed_varint());
  }
  // The same for 32-bit ids: what does not fit fails.
  std::uint32_t plus_difference32(std::uint32_t base) {
    std::uint64_t value = plus_difference(base);
    if (value <= 0xffffffffu) return static_cast<std::uint32_t>(value);
    fail();
    return 0;
  }

  std::span<const std::uint8_t> bytes(std::uint64_t size) {
    if (size > remaining()) {
      fail();
      return {};
    }
    std::span<const std::uint8_t> result(at_, static_cast<std::size_t>(size));
    at_ += size;
    return result;
  }
  std::span<const std::uint8_t> sized() { return bytes(varint()); }

  void fail() {
    ok_ = false;
    at_ = end_;
  }

 private:
  std::uint64_t fixed(std::size_t width) {
    std::span<const std::uint8_t> data = bytes(width);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < data.size(); ++i) value |= std::uint64_t{data[i]} << (8 * i);
    return value;
  }
  std::uint64_t long_varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) break;
      std::uint8_t byte = *at_++;
      if (shift == 63 && byte > 1) break;  // more than 64 bits
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }

  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  bool ok_ = true;
};

}  // namespace dynprof
