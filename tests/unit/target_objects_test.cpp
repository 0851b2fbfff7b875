#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/unit/target_fake_memory.h"
#include "user/target/code_reader.h"
#include "user/target/remote_objects.h"

namespace dynprof {
namespace {

using testing::FakeMemory;

constexpr std::uint64_t kStrType = 0x10000;
constexpr std::uint64_t kCodeType = 0x20000;

// Objects as CPython 3.11 lays them out.
class TargetObjects : public ::testing::Test {
 protected:
  TargetObjects() : objects_(memory_, layout_) { objects_.set_str_type(kStrType); }

  std::uint64_t next(std::size_t size) {
    std::uint64_t address = next_;
    next_ += (size + 15) / 16 * 16 + 4096;  // a hole after each object
    memory_.allocate(address, size);
    return address;
  }
  std::uint64_t ascii(const std::string& text) {
    std::uint64_t at = next(48 + text.size() + 1);
    head(at, text.size(), 1 | 8 | 16);
    for (std::size_t i = 0; i < text.size(); ++i) memory_.write(at + 48 + i, text[i]);
    return at;
  }
  template <class Char>
  std::uint64_t wide(const std::vector<Char>& characters) {
    std::uint64_t at = next(72 + (characters.size() + 1) * sizeof(Char));
    head(at, characters.size(), static_cast<std::uint32_t>(sizeof(Char)) | 8);
    for (std::size_t i = 0; i < characters.size(); ++i) {
      memory_.write(at + 72 + i * sizeof(Char), characters[i]);
    }
    return at;
  }
  void head(std::uint64_t at, std::uint64_t length, std::uint32_t state) {
    memory_.write(at + 8, kStrType);
    memory_.write(at + 16, length);
    memory_.write(at + 32, state << 2);
  }
  std::uint64_t bytes(const std::string& text) {
    std::uint64_t at = next(32 + text.size() + 1);
    memory_.write<std::uint64_t>(at + 16, text.size());
    for (std::size_t i = 0; i < text.size(); ++i) memory_.write(at + 32 + i, text[i]);
    return at;
  }
  std::uint64_t tuple(const std::vector<std::uint64_t>& items) {
    std::uint64_t at = next(24 + items.size() * 8);
    memory_.write<std::uint64_t>(at + 16, items.size());
    for (std::size_t i = 0; i < items.size(); ++i) memory_.write(at + 24 + i * 8, items[i]);
    return at;
  }
  std::uint64_t integer(std::int64_t size, std::vector<std::uint32_t> digits) {
    std::uint64_t at = next(24 + digits.size() * 4 + 4);
    memory_.write(at + 16, size);
    for (std::size_t i = 0; i < digits.size(); ++i) memory_.write(at + 24 + i * 4, digits[i]);
    return at;
  }
  // A dict with str keys (16-byte entries), or split when `values` is given.
  std::uint64_t dict(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& entries,
                     bool split = false) {
    std::uint64_t keys = next(32 + 64 + 16 * entries.size());
    memory_.write<std::uint8_t>(keys + 8, 6);
    memory_.write<std::uint8_t>(keys + 9, 6);
    memory_.write<std::uint8_t>(keys + 10, split ? 2 : 1);
    memory_.write<std::uint64_t>(keys + 24, entries.size());
    std::uint64_t values = split ? next(entries.size() * 8) : 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      memory_.write(keys + 32 + 64 + i * 16, entries[i].first);
      if (split) {
        memory_.write(values + i * 8, entries[i].second);
      } else {
        memory_.write(keys + 32 + 64 + i * 16 + 8, entries[i].second);
      }
    }
    std::uint64_t at = next(48);
    memory_.write(at + 32, keys);
    memory_.write(at + 40, values);
    keys_ = keys;
    return at;
  }
  std::uint64_t code(const std::string& name, const std::string& table = "\x80\x00") {
    std::uint64_t at = next(200);
    memory_.write<std::uint64_t>(at, 1);
    memory_.write(at + 8, kCodeType);
    memory_.write<std::uint32_t>(at + 72, 42);
    memory_.write(at + 112, ascii("/a/b.py"));
    memory_.write(at + 120, ascii(name));
    memory_.write(at + 128, ascii("C." + name));
    memory_.write(at + 136, bytes(table));
    return at;
  }

  FakeMemory memory_;
  const PythonLayout& layout_ = *measured_layout(python_version(3, 11));
  RemoteObjects objects_;
  std::uint64_t next_ = 0x100000;
  std::uint64_t keys_ = 0;
};

TEST_F(TargetObjects, StringsOfAllWidths) {
  EXPECT_EQ(objects_.read_str(ascii("")), "");
  EXPECT_EQ(objects_.read_str(ascii("forward")), "forward");
  EXPECT_EQ(objects_.read_str(ascii(std::string(10'000, 'n'))), std::string(10'000, 'n'));
  EXPECT_EQ(objects_.read_str(wide<std::uint8_t>({'c', 0xe9})), "c\xc3\xa9");
  EXPECT_EQ(objects_.read_str(wide<std::uint16_t>({0x20ac, 'x'})), "\xe2\x82\xacx");
  EXPECT_EQ(objects_.read_str(wide<std::uint32_t>({0x1f600})), "\xf0\x9f\x98\x80");
  // A lone surrogate, as surrogateescape makes it of an undecodable byte: three bytes.
  EXPECT_EQ(objects_.read_str(wide<std::uint16_t>({0xdcff})), "\xed\xb3\xbf");
}

TEST_F(TargetObjects, InvalidStrings) {
  std::string text;
  EXPECT_EQ(objects_.read_str(0, text), Unreadable::kBadLayout);
  EXPECT_EQ(objects_.read_str(0x8, text), Unreadable::kBadLayout);
  EXPECT_EQ(objects_.read_str(0x7000'0000, text), Unreadable::kFault);
  EXPECT_EQ(objects_.read_str(ascii(std::string(65'537, 'n')), text), Unreadable::kTooLong);
  EXPECT_EQ(objects_.read_str(wide<std::uint32_t>({0x110000}), text), Unreadable::kBadLayout);
  std::uint64_t torn = ascii("abc");
  memory_.write<std::uint64_t>(torn + 16, 5000);  // longer than what is there
  EXPECT_EQ(objects_.read_str(torn, text), Unreadable::kFault);
  std::uint64_t odd = ascii("abc");
  memory_.write<std::uint32_t>(odd + 32, (3 | 8) << 2);  // a width of 3
  EXPECT_EQ(objects_.read_str(odd, text), Unreadable::kBadLayout);
  std::uint64_t other = ascii("abc");
  memory_.write(other + 8, kCodeType);
  EXPECT_EQ(objects_.read_str(other, text), Unreadable::kBadLayout);
}

TEST_F(TargetObjects, Integers) {
  EXPECT_EQ(objects_.read_int(integer(0, {})), 0);
  EXPECT_EQ(objects_.read_int(integer(1, {7})), 7);
  EXPECT_EQ(objects_.read_int(integer(-1, {7})), -7);
  EXPECT_EQ(objects_.read_int(integer(2, {1, 1})), (1LL << 30) + 1);
  EXPECT_FALSE(objects_.read_int(integer(3, {1, 1, 1})));
  EXPECT_FALSE(objects_.read_int(integer(1, {1u << 30})));
  EXPECT_FALSE(objects_.read_int(integer(std::numeric_limits<std::int64_t>::min() + 1, {1})));
  EXPECT_FALSE(objects_.read_int(integer(std::numeric_limits<std::int64_t>::min(), {1})));
  EXPECT_FALSE(objects_.read_int(0));
}

TEST_F(TargetObjects, IntegersOf312) {
  RemoteObjects objects(memory_, *measured_layout(python_version(3, 12)));
  EXPECT_EQ(objects.read_int(integer(1, {0})), 0);  // sign bits 1: zero
  EXPECT_EQ(objects.read_int(integer(1 << 3, {9})), 9);
  EXPECT_EQ(objects.read_int(integer((1 << 3) | 2, {9})), -9);
}

TEST_F(TargetObjects, Dicts) {
  std::uint64_t a = ascii("alpha");
  std::uint64_t b = ascii("beta");
  for (bool split : {false, true}) {
    std::uint64_t d = dict({{a, 0x5000}, {b, 0x6000}, {ascii("gone"), 0}}, split);
    EXPECT_EQ(objects_.dict_get(d, "alpha"), 0x5000u);
    EXPECT_EQ(objects_.dict_get(d, "beta"), 0x6000u);
    EXPECT_FALSE(objects_.dict_get(d, "gone"));
    EXPECT_FALSE(objects_.dict_get(d, "gamma"));
    EXPECT_FALSE(objects_.dict_get(d, "alph"));
    auto entries = objects_.dict_entries(d);
    ASSERT_TRUE(entries);
    EXPECT_EQ(entries->size(), 2u);
    auto entry = objects_.find_entry(d, "beta");
    ASSERT_TRUE(entry);
    EXPECT_EQ(entry->index, 1u);
  }
}

TEST_F(TargetObjects, DictsWithSizesThatCannotBe) {
  std::uint64_t d = dict({{ascii("alpha"), 0x5000}});
  memory_.write<std::uint64_t>(keys_ + 24, 1ULL << 40);  // entries
  EXPECT_FALSE(objects_.dict_entries(d));
  memory_.write<std::uint64_t>(keys_ + 24, 65);  // more entries than slots
  EXPECT_FALSE(objects_.dict_entries(d));
  memory_.write<std::uint64_t>(keys_ + 24, 1);
  memory_.write<std::uint8_t>(keys_ + 8, 63);
  EXPECT_FALSE(objects_.dict_entries(d));
  memory_.write<std::uint8_t>(keys_ + 8, 6);
  memory_.write<std::uint8_t>(keys_ + 10, 9);
  EXPECT_FALSE(objects_.dict_entries(d));
}

TEST_F(TargetObjects, TuplesAreBounded) {
  EXPECT_EQ(objects_.tuple_items(tuple({1, 2, 3}))->size(), 3u);
  std::uint64_t t = tuple({1});
  memory_.write<std::uint64_t>(t + 16, 1ULL << 50);
  EXPECT_FALSE(objects_.tuple_items(t));
  memory_.write<std::uint64_t>(t + 16, 3);  // not all there
  EXPECT_FALSE(objects_.tuple_items(t));
}

TEST_F(TargetObjects, CodeIsReadWhole) {
  std::string table(5000, '\x80');
  std::uint64_t at = code("forward", table);
  CodeReader reader(objects_, kCodeType);
  RemoteCode read = reader.read(at);
  EXPECT_EQ(read.unreadable, Unreadable::kNo);
  EXPECT_EQ(read.filename, "/a/b.py");
  EXPECT_EQ(read.name, "forward");
  EXPECT_EQ(read.qualname, "C.forward");
  EXPECT_EQ(read.first_line, 42);
  EXPECT_EQ(read.line_table, table);
  EXPECT_EQ(reader.identity_of(at), read.identity);
  EXPECT_EQ(reader.read(at, read.identity).unreadable, Unreadable::kNo);
}

TEST_F(TargetObjects, CodeThatIsAnotherOneIsStale) {
  std::uint64_t at = code("forward");
  CodeReader reader(objects_, kCodeType);
  std::uint32_t identity = reader.read(at).identity;
  EXPECT_EQ(reader.read(at, identity + 1).unreadable, Unreadable::kStale);
  memory_.write(at + 120, ascii("backward"));
  RemoteCode read = reader.read(at, identity);
  EXPECT_EQ(read.unreadable, Unreadable::kStale);
  EXPECT_EQ(read.name, "");
}

// The object is replaced while its strings are read: at each of the reads in turn.
TEST_F(TargetObjects, CodeReplacedWhileReadIsNeverMisnamed) {
  for (int when = 1; when <= 5; ++when) {
    std::uint64_t at = code("forward");
    std::uint64_t other = ascii("impostor");
    CodeReader reader(objects_, kCodeType);
    std::uint32_t identity = reader.read(at).identity;
    int begin = memory_.reads;
    memory_.before_read = [&](int read) {
      if (read == begin + when) memory_.write(at + 120, other);
    };
    RemoteCode read = reader.read(at, identity);
    memory_.before_read = nullptr;
    if (when <= 3) {
      EXPECT_EQ(read.unreadable, Unreadable::kStale) << when;
    }
    EXPECT_TRUE(read.unreadable != Unreadable::kNo || read.name == "forward") << when;
  }
}

// Freed, and its memory not yet used again: all fields are as they were, and the line table is another object's.
TEST_F(TargetObjects, CodeFreedWhileReadHasNoLineTableOfAnother) {
  for (std::uint64_t link : {0ULL, 0x7f12'3456'7890ULL}) {
    for (int when = 1; when <= 5; ++when) {
      const std::string table = "\x80\x01";
      std::uint64_t at = code("forward", table);
      CodeReader reader(objects_, kCodeType);
      std::uint32_t identity = reader.read(at).identity;
      std::uint64_t lines = *memory_.read_pointer(at + 136);
      int begin = memory_.reads;
      memory_.before_read = [&](int read) {
        if (read != begin + when) return;
        memory_.write(at, link);
        memory_.write<std::uint8_t>(lines + 33, 0x7f);
      };
      RemoteCode read = reader.read(at, identity);
      memory_.before_read = nullptr;
      if (when <= 3) {
        EXPECT_EQ(read.unreadable, Unreadable::kStale) << when;
      }
      EXPECT_TRUE(read.unreadable != Unreadable::kNo || read.line_table == table) << when;
    }
  }
}

TEST_F(TargetObjects, CodeInUseHasAnyReferenceCount) {
  CodeReader reader(objects_, kCodeType);
  // One; immortal in 3.12 and 3.13; in 3.14, with flags.
  for (std::uint64_t count : {1ULL, 0xffff'ffffULL, 0x0004'0000'c000'0000ULL}) {
    std::uint64_t at = code("forward");
    memory_.write(at, count);
    EXPECT_EQ(reader.read(at).unreadable, Unreadable::kNo) << count;
  }
}

TEST_F(TargetObjects, ObjectsThatAreNotCodeAreNamedSo) {
  CodeReader reader(objects_, kCodeType);
  EXPECT_EQ(reader.read(0).unreadable, Unreadable::kBadLayout);
  EXPECT_EQ(reader.read(0x7000'0000).unreadable, Unreadable::kFault);
  std::uint64_t at = code("f");
  memory_.write(at + 8, kStrType);
  EXPECT_EQ(reader.read(at).unreadable, Unreadable::kBadLayout);
  at = code(std::string(65'537, 'n'));
  EXPECT_EQ(reader.read(at).unreadable, Unreadable::kTooLong);
  at = code("f", std::string(kMaxLineTable + 1, 'x'));
  EXPECT_EQ(reader.read(at).unreadable, Unreadable::kTooLong);
  at = code("f");
  memory_.write<std::uint64_t>(at + 136, 0x7000'0000);
  EXPECT_EQ(reader.read(at).unreadable, Unreadable::kFault);
}

TEST_F(TargetObjects, ABatchAnswersEachOnItsOwn) {
  std::vector<CodeRequest> requests = {{code("a"), {}},
                                       {0x7000'0000, {}},
                                       {code("b"), 1u},
                                       {code("c", std::string(3000, 'x')), {}},
                                       {0, {}}};
  CodeReader reader(objects_, kCodeType);
  int begin = memory_.reads;
  auto codes = reader.read_many(requests);
  EXPECT_LE(memory_.reads - begin, 4);
  ASSERT_EQ(codes.size(), 5u);
  EXPECT_EQ(codes[0].name, "a");
  EXPECT_EQ(codes[1].unreadable, Unreadable::kFault);
  EXPECT_EQ(codes[2].unreadable, Unreadable::kStale);
  EXPECT_EQ(codes[3].name, "c");
  EXPECT_EQ(codes[3].line_table.size(), 3000u);
  EXPECT_EQ(codes[4].unreadable, Unreadable::kBadLayout);
}

// Whatever the memory holds, every reader comes back, and in bounded memory.
TEST_F(TargetObjects, RandomMemoryIsHarmless) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::uint64_t> words(512);
    for (std::uint64_t& word : words) {
      switch (random() % 4) {
        case 0:
          word = 0x900000 + random() % 4096 / 8 * 8;
          break;
        case 1:
          word = random() % 64;
          break;
        case 2:
          word = random();
          break;
        default:
          word = kStrType;
          break;
      }
    }
    memory_.put(0x900000, std::as_bytes(std::span(words)));
    for (int minor : {10, 11, 12, 13}) {
      RemoteObjects objects(memory_, *measured_layout(python_version(3, minor)));
      CodeReader reader(objects, 0);
      for (std::uint64_t at = 0x900000; at < 0x900000 + 4096; at += 64) {
        (void)objects.read_str(at);
        (void)objects.read_int(at);
        (void)objects.dict_get(at, "sys");
        (void)objects.tuple_items(at, 1000);
        (void)objects.type_get(at, "x");
        (void)reader.read(at);
        (void)reader.read_locals(at);
      }
    }
  }
}

}  // namespace
}  // namespace dynprof
