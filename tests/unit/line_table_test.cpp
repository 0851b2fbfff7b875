#include "symbolizer/python/line_table.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "symbolizer/python/python_version.h"

namespace dynprof {
namespace {

constexpr std::uint16_t k310 = python_version(3, 10);
constexpr std::uint16_t k311 = python_version(3, 11);
constexpr std::uint16_t k312 = python_version(3, 12);
constexpr std::uint16_t k313 = python_version(3, 13);

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (int value : values) text.push_back(static_cast<char>(value));
  return text;
}

// A string literal with the zeros inside it.
template <std::size_t kSize>
std::string literal(const char (&text)[kSize]) {
  return std::string(text, kSize - 1);
}

// The start of a 3.11+ entry.
int head(int code, int units) { return 0x80 | code << 3 | (units - 1); }

std::string varint(std::uint64_t value) {
  std::string text;
  for (; value >= 64; value >>= 6) text.push_back(static_cast<char>(64 | (value & 63)));
  text.push_back(static_cast<char>(value));
  return text;
}

std::string signed_varint(std::int64_t value) {
  return varint(value < 0 ? static_cast<std::uint64_t>(-value) << 1 | 1
                          : static_cast<std::uint64_t>(value) << 1);
}

// An entry of kind 13: a line and no columns.
std::string line_entry(int units, std::int64_t delta) {
  return bytes({head(13, units)}) + signed_varint(delta);
}

using Ranges = std::vector<LineRange>;

// ---- tables CPython wrote: the same function, compiled by each version ---------------------------
// The expected ranges are its co_lines(). No line stands before line 2.
//   2 def f(x):
//   3   with x as y:
//   4     y.a(
//   5       1
//   6     )
//   7   def g():
//   8     return x
//   9   return g

TEST(LineTable, WithBlockOn310) {
  const std::string table = bytes({6, 1, 4, 1, 2, 1, 6, 255, 28, 255, 12, 4, 4, 2});
  EXPECT_EQ(
      decode_line_table(k310, table, 2),
      (Ranges{{0, 3, 3}, {3, 5, 4}, {5, 6, 5}, {6, 9, 4}, {9, 23, 3}, {23, 29, 7}, {29, 31, 9}}));
}

TEST(LineTable, WithBlockAndClosureOn312) {
  const std::string table = literal(
      "\xf8\x80\x00\xd8\t\n\xf0\x00\x03\x05\n\x88\x61\xd8\x08\t\x8f\x03\x89\x03\xd8\x0b\x0c\xf4\x03"
      "\x02\t\n\xf7\x03\x03\x05\n\xf4\x08\x01\x05\x11\xe0\x0b\x0c\x80H\xf7\r\x03\x05\n\xf0\x00\x03"
      "\x05\n\xfa");
  const Ranges expected{{0, 1, 0},   {1, 2, 2},   {2, 5, 3},   {5, 16, 4},
                        {16, 17, 5}, {17, 22, 4}, {22, 30, 3}, {30, 35, 7},
                        {35, 37, 9}, {37, 46, 3}, {46, 49, 0}};
  EXPECT_EQ(decode_line_table(k312, table, 2), expected);
  EXPECT_EQ(decode_line_table(k311, table, 2), expected) << "one format from 3.11 on";
  EXPECT_EQ(decode_line_table(python_version(3, 15), table, 2), expected);
}

TEST(LineTable, WithBlockOn313) {
  const std::string table = literal(
      "\xf8\x80\x00\xd9\t\n\x88\x61\xd8\x08\t\x8f\x03\x89\x03\xd8\x0b\x0c\xf4\x03\x02\t\n\xf7\x03"
      "\x00\n\x0b\xf5\x08\x01\x05\x11\xe0\x0b\x0c\x80H\xf7\r\x00\n\x0b\x8d\x11\xfa");
  EXPECT_EQ(decode_line_table(k313, table, 2), (Ranges{{0, 1, 0},
                                                       {1, 2, 2},
                                                       {2, 5, 3},
                                                       {5, 16, 4},
                                                       {16, 17, 5},
                                                       {17, 22, 4},
                                                       {22, 30, 3},
                                                       {30, 36, 7},
                                                       {36, 38, 9},
                                                       {38, 52, 3},
                                                       {52, 55, 0}}));
}

// ---- the two formats, entry by entry -------------------------------------------------------------

TEST(LineTable, EveryKindOfEntry) {
  const std::string table = bytes({head(0, 1), 0x11}) +                  // same line
                            bytes({head(9, 8), 0x7f}) +                  // same line
                            bytes({head(10, 2), 1, 2}) +                 // same line
                            bytes({head(11, 1), 1, 2}) +                 // + 1
                            bytes({head(12, 1), 1, 2}) +                 // + 2
                            bytes({head(13, 3)}) + signed_varint(-10) +  // any delta
                            bytes({head(14, 4)}) + signed_varint(1000) + bytes({2, 3, 4}) +
                            bytes({head(15, 5)}) +  // none
                            bytes({head(11, 1), 1, 2});
  EXPECT_EQ(decode_line_table(k311, table, 100), (Ranges{{0, 11, 100},
                                                         {11, 12, 101},
                                                         {12, 13, 103},
                                                         {13, 16, 93},
                                                         {16, 20, 1093},
                                                         {20, 25, 0},
                                                         {25, 26, 1094}}));
}

TEST(LineTable, AnEntryWithoutALineDoesNotMoveTheLine) {
  const std::string table =
      bytes({head(15, 1), head(11, 1), 0, 0, head(15, 8), head(15, 8), head(11, 1), 0, 0});
  EXPECT_EQ(decode_line_table(k311, table, 7),
            (Ranges{{0, 1, 0}, {1, 2, 8}, {2, 18, 0}, {18, 19, 9}}));
  const std::string pairs = bytes({2, 128, 2, 1, 200, 128, 56, 128, 2, 1});
  EXPECT_EQ(decode_line_table(k310, pairs, 7),
            (Ranges{{0, 1, 0}, {1, 2, 8}, {2, 130, 0}, {130, 131, 9}}));
}

TEST(LineTable, LargeDeltasOn310ComeInSeveralPairs) {
  // + 127 + 127 + 46 = 300 ahead, then 200 back; a run of 300 bytes is 254 + 46.
  const std::string pairs = bytes({0, 127, 0, 127, 254, 46, 46, 0, 0, 129, 2, 256 - 73});
  EXPECT_EQ(decode_line_table(k310, pairs, 1), (Ranges{{0, 150, 301}, {150, 151, 101}}));
}

TEST(LineTable, OddLengthsOn310GoByTheFirstByteOfAUnit) {
  const std::string pairs = bytes({3, 0, 1, 1, 1, 1, 3, 1});
  // Bytes 0-2 line 5, 3 line 6, 4 line 7, 5-7 line 8: units start at bytes 0, 2, 4 and 6.
  EXPECT_EQ(decode_line_table(k310, pairs, 5), (Ranges{{0, 2, 5}, {2, 3, 7}, {3, 4, 8}}));
}

TEST(LineTable, LargestAndSmallestLines) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(decode_line_table(k311, line_entry(1, kMax - 1) + line_entry(1, 1 - kMax), 1),
            (Ranges{{0, 1, kMax}, {1, 2, 1}}));
  // Outside of what a line can be: no line, and the running line comes back unharmed.
  EXPECT_EQ(decode_line_table(k311, line_entry(1, kMax) + line_entry(1, -kMax), 1),
            (Ranges{{0, 1, 0}, {1, 2, 1}}));
  EXPECT_EQ(decode_line_table(k311, line_entry(1, -9) + line_entry(1, 9), 5),
            (Ranges{{0, 1, 0}, {1, 2, 5}}));
  // The first instruction of a module stands on line 0 since 3.11.
  EXPECT_EQ(decode_line_table(k311, line_entry(1, -1) + line_entry(1, 1), 1),
            (Ranges{{0, 1, 0}, {1, 2, 1}}));
}

// ---- look-up -------------------------------------------------------------------------------------

TEST(LineOfUnit, NotBegunIsTheFirstLineAndBeyondTheEndIsNone) {
  const std::string table = line_entry(2, 3);
  const Ranges ranges = decode_line_table(k311, table, 10);
  for (std::int32_t unit : {-1, -2, std::numeric_limits<std::int32_t>::min()}) {
    EXPECT_EQ(line_of_unit(k311, table, 10, unit), 10);
    EXPECT_EQ(line_of_unit(ranges, 10, unit), 10);
  }
  EXPECT_EQ(line_of_unit(k311, table, -5, -1), 0);
  for (std::int32_t unit : {2, 3, 0xffffff, std::numeric_limits<std::int32_t>::max()}) {
    EXPECT_EQ(line_of_unit(k311, table, 10, unit), 0);
    EXPECT_EQ(line_of_unit(ranges, 10, unit), 0);
  }
  EXPECT_EQ(line_of_unit(k311, "", 10, 0), 0);
  EXPECT_EQ(line_of_unit(k310, "", 10, 0), 0);
  EXPECT_EQ(line_of_unit(Ranges{}, 10, 0), 0);
}

TEST(LineOfUnit, TheUnitAtABoundaryBelongsToTheEntryThatBeginsThere) {
  const std::string table = line_entry(8, 0) + line_entry(1, 1) + line_entry(8, 1);
  EXPECT_EQ(line_of_unit(k312, table, 1, 7), 1);
  EXPECT_EQ(line_of_unit(k312, table, 1, 8), 2);
  EXPECT_EQ(line_of_unit(k312, table, 1, 9), 3);
  const std::string pairs = bytes({16, 0, 2, 1, 16, 1});
  EXPECT_EQ(line_of_unit(k310, pairs, 1, 7), 1);
  EXPECT_EQ(line_of_unit(k310, pairs, 1, 8), 2);
  EXPECT_EQ(line_of_unit(k310, pairs, 1, 9), 3);
}

TEST(LineOfUnit, VersionsBefore310HaveNoLines) {
  const std::string table = line_entry(2, 3);
  for (std::uint16_t python : std::initializer_list<std::uint16_t>{
           0, python_version(2, 7), python_version(3, 8), python_version(3, 9)}) {
    EXPECT_TRUE(decode_line_table(python, table, 1).empty());
    EXPECT_EQ(line_of_unit(python, table, 1, 0), 0);
    EXPECT_EQ(line_of_unit(python, table, 1, -1), 1);
  }
}

// ---- damage --------------------------------------------------------------------------------------

TEST(DamagedLineTable, EndsTheListAtTheDamage) {
  const std::string damage[] = {
      bytes({head(13, 1)}),        // cut before the line delta
      bytes({head(13, 1), 0x41}),  // cut inside it
      bytes({head(14, 1), 0x41, 0x41}),
      bytes({head(13, 1), head(11, 1), 0, 0}),  // the next entry where it should be
      bytes({head(13, 1), 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x01}),  // 7 digits: not an int
      bytes({head(13, 1), 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f}),        // 36 bits
  };
  for (const std::string& bad : damage) {
    EXPECT_EQ(decode_line_table(k311, line_entry(2, 3) + bad + line_entry(2, 3), 10),
              (Ranges{{0, 2, 13}}))
        << testing::PrintToString(bad);
  }
  EXPECT_EQ(decode_line_table(k310, bytes({4, 3, 2}), 10), (Ranges{{0, 2, 13}})) << "half a pair";
  EXPECT_EQ(decode_line_table(k311, bytes({0x11}) + line_entry(2, 3), 10), Ranges{})
      << "an entry begins with the high bit";
}

TEST(DamagedLineTable, ColumnsAreSkippedWhateverTheyHold) {
  const std::string table = bytes({head(14, 2)}) + signed_varint(3) + std::string(500, 0x7f) +
                            bytes({head(0, 1), head(11, 1)});
  EXPECT_EQ(decode_line_table(k311, table, 10), (Ranges{{0, 3, 13}, {3, 4, 14}}));
}

TEST(DamagedLineTable, ReadsNoMoreThanTheLimit) {
  std::string table(kMaxLineTableBytes, static_cast<char>(head(15, 8)));
  table += line_entry(1, 1);
  const std::uint32_t units = 8u * static_cast<std::uint32_t>(kMaxLineTableBytes);
  EXPECT_EQ(decode_line_table(k311, table, 1), (Ranges{{0, units, 0}}));
  EXPECT_EQ(line_of_unit(k311, table, 1, static_cast<std::int32_t>(units)), 0);

  // As many runs as a table can hold, and the running line far beyond 32 bits.
  std::string far;
  while (far.size() < kMaxLineTableBytes) far += line_entry(1, 0x7fffffff);
  EXPECT_EQ(decode_line_table(k311, far, 0).size(), 2u);
  EXPECT_EQ(line_of_unit(k311, far, 0, 0), 0x7fffffff);
}

// On any bytes: the runs are ascending, touch, differ, and both look-ups agree with them.
TEST(DamagedLineTable, RandomBytesKeepThePromises) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 3000; ++round) {
    std::string table(random() % 200, '\0');
    for (char& byte : table) byte = static_cast<char>(random());
    const std::uint16_t python = round % 3 == 0 ? k310 : k313;
    if (python == k313 && !table.empty()) table[0] = static_cast<char>(table[0] | 0x80);
    const auto first_line = static_cast<std::int32_t>(random());
    const Ranges ranges = decode_line_table(python, table, first_line);
    std::uint32_t end = 0;
    std::int32_t last = -1;
    for (const LineRange& range : ranges) {
      ASSERT_EQ(range.begin, end);
      ASSERT_LT(range.begin, range.end);
      ASSERT_NE(range.line, last);
      ASSERT_GE(range.line, 0);
      for (std::uint32_t unit : {range.begin, range.end - 1}) {
        const auto at = static_cast<std::int32_t>(unit);
        ASSERT_EQ(line_of_unit(python, table, first_line, at), range.line);
        ASSERT_EQ(line_of_unit(ranges, first_line, at), range.line);
      }
      end = range.end;
      last = range.line;
    }
    ASSERT_EQ(line_of_unit(python, table, first_line, static_cast<std::int32_t>(end)), 0);
  }
}

}  // namespace
}  // namespace dynprof
