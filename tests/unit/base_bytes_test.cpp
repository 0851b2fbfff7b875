#include <gtest/gtest.h>

#include <random>

#include "symbolizer/base/byte_reader.h"
#include "symbolizer/base/byte_writer.h"

namespace dynprof {
namespace {

TEST(Bytes, RoundTrip) {
  ByteWriter out;
  std::vector<std::uint64_t> values = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX};
  for (unsigned bit = 0; bit < 64; ++bit) values.push_back(std::uint64_t{1} << bit);
  for (std::uint64_t value : values) {
    out.varint(value);
    out.signed_varint(static_cast<std::int64_t>(value));
    out.difference(value, 77);
    out.u8(static_cast<std::uint8_t>(value));
    out.u16(static_cast<std::uint16_t>(value));
    out.u32(static_cast<std::uint32_t>(value));
    out.u64(value);
  }
  out.sized(std::vector<std::uint8_t>{1, 2, 3});
  ByteReader in(out.view());
  for (std::uint64_t value : values) {
    EXPECT_EQ(in.varint(), value);
    EXPECT_EQ(in.signed_varint(), static_cast<std::int64_t>(value));
    EXPECT_EQ(in.plus_difference(77), value);
    EXPECT_EQ(in.u8(), static_cast<std::uint8_t>(value));
    EXPECT_EQ(in.u16(), static_cast<std::uint16_t>(value));
    EXPECT_EQ(in.u32(), static_cast<std::uint32_t>(value));
    EXPECT_EQ(in.u64(), value);
  }
  EXPECT_EQ(in.sized().size(), 3u);
  EXPECT_TRUE(in.done());
}

TEST(Bytes, SmallNumbersAreShort) {
  for (std::int64_t value : {0, 1, -1, 63, -64}) {
    ByteWriter out;
    out.signed_varint(value);
    EXPECT_EQ(out.size(), 1u) << value;
  }
}

TEST(Bytes, ReadingBeyondTheEndFailsPermanently) {
  const std::vector<std::uint8_t> bytes = {1, 2, 3};
  ByteReader in(bytes);
  EXPECT_EQ(in.u32(), 0u);
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.u8(), 0u) << "nothing is read after a failure";
  EXPECT_FALSE(in.done());
  ByteReader length(bytes);
  EXPECT_TRUE(length.bytes(UINT64_MAX).empty());
  EXPECT_FALSE(length.ok());
}

TEST(Bytes, InvalidVarints) {
  const std::vector<std::uint8_t> unfinished = {0x80, 0x80};
  ByteReader a(unfinished);
  EXPECT_EQ(a.varint(), 0u);
  EXPECT_FALSE(a.ok());
  const std::vector<std::uint8_t> endless(20, 0xff);
  ByteReader b(endless);
  b.varint();
  EXPECT_FALSE(b.ok());
  std::vector<std::uint8_t> too_large(9, 0x80);
  too_large.push_back(2);  // bit 64
  ByteReader c(too_large);
  c.varint();
  EXPECT_FALSE(c.ok());
}

TEST(Bytes, BoundsOfNarrowReads) {
  ByteWriter out;
  out.varint(std::uint64_t{1} << 32);
  ByteReader a(out.view());
  a.varint32();
  EXPECT_FALSE(a.ok());
  ByteReader b(out.view());
  b.signed_varint32();
  EXPECT_FALSE(b.ok()) << "2^31 does not fit";
  out.clear();
  out.signed_varint(-1);
  ByteReader c(out.view());
  c.plus_difference32(0);
  EXPECT_FALSE(c.ok());
  ByteReader d(out.view());
  EXPECT_EQ(d.plus_difference32(1), 0u);
  EXPECT_TRUE(d.done());
}

}  // namespace
}  // namespace dynprof
