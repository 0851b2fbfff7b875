// Appends integers and bytes to a buffer: little endian, LEB128 varints, zigzag for signed values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dynprof {

// Small magnitudes of either sign become small unsigned numbers: 0, -1, 1, -2, ... -> 0, 1, 2, 3.
constexpr std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}

class ByteWriter {
 public:
  void u8(std::uint8_t value) { bytes_.push_back(value); }
  void u16(std::uint16_t value) { fixed(value, 2); }
  void u32(std::uint32_t value) { fixed(value, 4); }
  void u64(std::uint64_t value) { fixed(value, 8); }

  void varint(std::uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<std::uint8_t>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<std::uint8_t>(value));
  }
  void signed_varint(std::int64_t value) { varint(zigzag(value)); }
  // a - b modulo 2^64, as signed: exact for any pair of 64-bit values.
  void difference(std::uint64_t a, std::uint64_t b) {
    signed_varint(static_cast<std::int64_t>(a - b));
  }

  void bytes(std::string_view data) { bytes_.insert(bytes_.end(), data.begin(), data.end()); }
  void bytes(std::span<const std::uint8_t> data) {
    bytes_.insert(bytes_.end(), data.begin(), data.end());
  }
  // A length and that many bytes.
  void sized(std::span<const std::uint8_t> data) {
    varint(data.size());
    bytes(data);
  }

  void clear() { bytes_.clear(); }
  std::size_t size() const { return bytes_.size(); }
  std::span<const std::uint8_t> view() const { return bytes_; }

 private:
  void fixed(std::uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }

  std::vector<std::uint8_t> bytes_;
};

}  // namespace dynprof
