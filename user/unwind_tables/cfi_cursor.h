// Reads call frame information inside one entry of .eh_frame or .debug_frame. The first read beyond the
// entry's end, or of a number wider than 64 bits, makes the cursor fail for good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "user/unwind_tables/byte_source.h"

namespace dynprof {

// DW_EH_PE_*: how a pointer is written (low four bits) and what it is relative to.
inline constexpr std::uint8_t kPointerAbsolute = 0x00;
inline constexpr std::uint8_t kPointerFormat = 0x0f;
inline constexpr std::uint8_t kPointerRelativeToItself = 0x10;
inline constexpr std::uint8_t kPointerOmitted = 0xff;

class CfiCursor {
 public:
  // Bytes [begin, end) of `section`, which is loaded at `address`.
  CfiCursor(ByteView section, std::uint64_t address, std::size_t begin, std::size_t end)
      : data_(section.data()),
        address_(address),
        at_(begin),
        end_(end < section.size() ? end : section.size()) {
    if (at_ > end_) fail();
  }

  bool ok() const { return ok_; }
  bool done() const { return at_ >= end_; }
  std::size_t position() const { return at_; }
  std::size_t left() const { return end_ - at_; }

  std::uint8_t u8() { return fixed<std::uint8_t>(); }
  std::uint16_t u16() { return fixed<std::uint16_t>(); }
  std::uint32_t u32() { return fixed<std::uint32_t>(); }
  std::uint64_t u64() { return fixed<std::uint64_t>(); }

  std::uint64_t uleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint8_t byte = u8();
      if (shift == 63 && byte > 1) break;
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }

  std::int64_t sleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint8_t byte = u8();
      // The tenth byte holds one bit of the number and its sign.
      if (shift == 63 && byte != 0 && byte != 0x7f) break;
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) {
        if ((byte & 0x40) != 0 && shift < 57) value |= ~std::uint64_t{0} << (shift + 7);
        return static_cast<std::int64_t>(value);
      }
    }
    fail();
    return 0;
  }

  ByteView bytes(std::uint64_t size) {
    if (size > left()) {
      fail();
      return {};
    }
    const ByteView view(data_ + at_, static_cast<std::size_t>(size));
    at_ += view.size();
    return view;
  }
  void skip(std::uint64_t size) { bytes(size); }

  // A pointer by its encoding; one that must be followed, or is relative to what only the dynamic
  // linker knows, fails.
  std::uint64_t pointer(std::uint8_t encoding) {
    const std::uint64_t here = address_ + at_;
    const std::uint64_t value = pointer_value(encoding);
    switch (encoding & ~kPointerFormat) {
      case kPointerAbsolute:
        return value;
      case kPointerRelativeToItself:
        return here + value;
      default:
        fail();
        return 0;
    }
  }
  std::uint64_t pointer_value(std::uint8_t encoding) {
    switch (encoding & kPointerFormat) {
      case 0x00:
      case 0x04:
      case 0x0c:
        return u64();
      case 0x01:
        return uleb();
      case 0x02:
        return u16();
      case 0x03:
        return u32();
      case 0x09:
        return static_cast<std::uint64_t>(sleb());
      case 0x0a:
        return static_cast<std::uint64_t>(std::int64_t{static_cast<std::int16_t>(u16())});
      case 0x0b:
        return static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(u32())});
      default:
        fail();
        return 0;
    }
  }

  void fail() {
    ok_ = false;
    at_ = end_;
  }

 private:
  template <class T>
  T fixed() {
    T value = 0;
    if (sizeof value > left()) {
      fail();
      return value;
    }
    std::memcpy(&value, data_ + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  const std::uint8_t* data_;
  std::uint64_t address_;
  std::size_t at_;
  std::size_t end_;
  bool ok_ = true;
};

}  // namespace dynprof
