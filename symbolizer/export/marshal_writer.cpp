#include "symbolizer/export/marshal_writer.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxText = 0x7fffffff;  // marshal's sizes are signed 32 bit

}  // namespace

void MarshalWriter::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_ += static_cast<char>((value >> (8 * i)) & 0xff);
}

void MarshalWriter::begin_tuple(std::uint32_t size) {
  out_ += '(';
  little_endian(size, 4);
}

void MarshalWriter::integer(std::int64_t value) {
  using Int32 = std::numeric_limits<std::int32_t>;
  if (value >= Int32::min() && value <= Int32::max()) {
    out_ += 'i';
    little_endian(static_cast<std::uint64_t>(value), 4);
    return;
  }
  // 15-bit digits, least significant first; the sign is that of the digit count.
  std::uint64_t rest =
      value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  int digits = (64 - std::countl_zero(rest) + 14) / 15;
  out_ += 'l';
  little_endian(static_cast<std::uint64_t>(static_cast<std::int64_t>(value < 0 ? -digits : digits)),
                4);
  for (; rest != 0; rest >>= 15) little_endian(rest & 0x7fff, 2);
}

void MarshalWriter::real(double value) {
  out_ += 'g';
  little_endian(std::bit_cast<std::uint64_t>(value), 8);
}

void MarshalWriter::text(std::string_view text) {
  std::string encoded = backslash_escaped(text.substr(0, kMaxText / 6));
  out_ += 'u';
  little_endian(encoded.size(), 4);
  out_ += encoded;
}

void MarshalWriter::sized(char tag, std::string_view bytes) {
  bytes = bytes.substr(0, kMaxText);
  out_ += tag;
  little_endian(bytes.size(), 4);
  out_ += bytes;
}

void MarshalWriter::complex(double real, double imaginary) {
  out_ += 'y';
  little_endian(std::bit_cast<std::uint64_t>(real), 8);
  little_endian(std::bit_cast<std::uint64_t>(imaginary), 8);
}

void MarshalWriter::long_integer(bool negative, const std::vector<std::uint16_t>& digits) {
  const auto count = static_cast<std::int32_t>(std::min(digits.size(), kMaxText));
  out_ += 'l';
  number(negative ? -count : count);
  for (std::int32_t i = 0; i < count; ++i) little_endian(digits[static_cast<std::size_t>(i)], 2);
}

void MarshalWriter::begin_frozenset(std::uint32_t size) {
  out_ += '>';
  little_endian(size, 4);
}

}  // namespace dynprof
