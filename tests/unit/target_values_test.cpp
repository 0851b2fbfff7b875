// RemoteValues against objects no interpreter makes: forged, cyclic, torn, freed.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <string>

#include "tests/unit/target_fake_memory.h"
#include "user/target/bounded_memory.h"
#include "user/target/remote_values.h"

namespace dynprof {
namespace {

using testing::FakeMemory;

constexpr std::uint64_t kHeapType = 1ULL << 9;
constexpr std::uint64_t kManagedDict = 1ULL << 4;
constexpr std::uint64_t kInlineValues = 1ULL << 2;

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

  FakeMemory memory_;
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

TEST_F(TargetValues, NothingIsReadOutOfWhatIsNoObject) {
  auto v = values();
  for (std::uint64_t address : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{0x7000'0000},
                                ~std::uint64_t{7}, next(400) /* zeros: no type */}) {
    EXPECT_EQ(v.value(address).kind, RemoteValue::Kind::kNothing);
    EXPECT_EQ(v.type_name(address), "");
    EXPECT_FALSE(v.read_int(address) || v.read_float(address) || v.read_str(address));
    EXPECT_FALSE(v.list_items(address, 9) || v.deque_items(address, 9) || v.set_items(address, 9));
    EXPECT_FALSE(v.dict_items(address, 9) || v.tuple_items(address, 9) || v.length(address));
    EXPECT_FALSE(v.attribute(address, "a") || v.attributes(address, 9));
    EXPECT_FALSE(v.is_none(address));
  }
}

TEST_F(TargetValues, ATypeHasToBeOne) {
  std::uint64_t number = integer(7);
  EXPECT_EQ(values().read_int(number), 7);
  memory_.write(int_ + 8, list_);  // its type is no metatype
  EXPECT_FALSE(values().read_int(number));
  memory_.write(int_ + 8, meta_);
  memory_.write<std::int64_t>(int_ + 32, -1);  // tp_basicsize
  EXPECT_FALSE(values().read_int(number));
}

TEST_F(TargetValues, KindsAreNotTakenForEachOther) {
  auto v = values();
  std::uint64_t number = integer(7);
  std::uint64_t word = text("w");
  EXPECT_FALSE(v.read_str(number) || v.read_float(number) || v.read_bool(number));
  EXPECT_FALSE(v.read_int(word) || v.list_items(word, 99) || v.set_items(word, 99));
  EXPECT_FALSE(v.dict_items(list({number}), 99) || v.deque_items(list({number}), 99));
  EXPECT_EQ(v.value(list({})).text, "list");
  EXPECT_EQ(v.value(word).text, "w");
}

TEST_F(TargetValues, IntegersOfUpTo63Bits) {
  auto make = [&](std::int64_t size, std::vector<std::uint32_t> digits) {
    std::uint64_t at = object(int_, 24 + 4 * digits.size());
    memory_.write(at + 16, size);
    for (std::size_t i = 0; i < digits.size(); ++i) memory_.write(at + 24 + 4 * i, digits[i]);
    return at;
  };
  const std::uint32_t full = (1U << 30) - 1;
  auto v = values();
  EXPECT_EQ(v.read_int(make(0, {})), 0);
  EXPECT_EQ(v.read_int(make(3, {full, full, 7})), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(v.read_int(make(-3, {full, full, 7})), -std::numeric_limits<std::int64_t>::max());
  EXPECT_FALSE(v.read_int(make(3, {0, 0, 8})));
  EXPECT_FALSE(v.read_int(make(1, {1U << 30})));
  EXPECT_FALSE(v.read_int(make(4, {1, 1, 1, 1})));
  EXPECT_FALSE(v.read_int(make(2, {1})));  // a digit is not there
  EXPECT_FALSE(v.read_int(make(std::numeric_limits<std::int64_t>::min(), {1})));
}

TEST_F(TargetValues, ABoolIsOneOrZero) {
  std::uint64_t bool_type = type("bool", 1ULL << 24, 24, int_);
  std::uint64_t odd = object(bool_type, 32);
  memory_.write<std::int64_t>(odd + 16, 1);
  memory_.write<std::uint32_t>(odd + 24, 2);
  EXPECT_FALSE(values().read_bool(odd));
  memory_.write<std::uint32_t>(odd + 24, 1);
  EXPECT_EQ(values().read_bool(odd), true);
}

TEST_F(TargetValues, AFloatByName) {
  std::uint64_t float_type = type("float", 0, 24);
  std::uint64_t half = object(type("Own", kHeapType, 24, float_type), 24);
  memory_.write(half + 16, 0.5);
  EXPECT_EQ(values().read_float(half), 0.5);
  // A class of Python's that is called so keeps nothing there.
  std::uint64_t other = object(type("float", kHeapType, 16), 24);
  EXPECT_FALSE(values().read_float(other));
}

TEST_F(TargetValues, ListsOfImpossibleLength) {
  std::uint64_t one = list({integer(1), integer(2)});
  EXPECT_EQ(values().list_items(one, 2)->size(), 2u);
  EXPECT_FALSE(values().list_items(one, 1));
  EXPECT_EQ(values().list_tail(one, 1)->size(), 1u);
  for (std::uint64_t size : {std::uint64_t{3}, std::uint64_t{1} << 41, ~std::uint64_t{0}}) {
    memory_.write(one + 16, size);
    EXPECT_FALSE(values().list_items(one, 100)) << size;
    EXPECT_FALSE(values().list_items(one, ~std::size_t{0} >> 1)) << size;
    EXPECT_FALSE(values().list_tail(one, 100)) << size;
  }
}

TEST_F(TargetValues, AListThatChangesWhileItIsRead) {
  std::uint64_t changing = list({integer(1), integer(2), integer(3)});
  values().list_items(changing, 9);
  // At every look the list is another one: nothing.
  memory_.before_read = [&](int n) { memory_.write<std::uint64_t>(changing + 16, 1 + n % 3); };
  EXPECT_FALSE(values().list_items(changing, 9));
  // Only the items change, the head stays.
  std::uint64_t table = *memory_.read<std::uint64_t>(changing + 24);
  memory_.before_read = [&](int n) {
    memory_.write<std::uint64_t>(changing + 16, 3);
    memory_.write<std::uint64_t>(table, static_cast<std::uint64_t>(n) * 16);
  };
  EXPECT_FALSE(values().list_items(changing, 9));
  // It comes to rest.
  int last = memory_.reads + 8;
  memory_.before_read = [&](int n) {
    if (n < last) memory_.write<std::uint64_t>(table, static_cast<std::uint64_t>(n) * 16);
  };
  EXPECT_EQ(values().list_items(changing, 9)->size(), 3u);
}

TEST_F(TargetValues, ListsAndDictsThatHoldThemselves) {
  std::uint64_t own = list({integer(1), integer(1)});
  memory_.write(*memory_.read<std::uint64_t>(own + 24), own);
  EXPECT_EQ((*values().list_items(own, 9))[0], own);
  std::uint64_t name = text("self");
  std::uint64_t mine = dict({{name, integer(1)}});
  memory_.write(*memory_.read<std::uint64_t>(mine + 32) + 40 + 16, mine);
  EXPECT_EQ((*values().dict_items(mine, 9))[0].value, mine);
}

TEST_F(TargetValues, ForgedDicts) {
  std::uint64_t d = dict({{text("a"), integer(1)}, {integer(5), integer(2)}});
  std::uint64_t table = *memory_.read<std::uint64_t>(d + 32);
  EXPECT_EQ(values().dict_items(d, 2)->size(), 2u);
  EXPECT_FALSE(values().dict_items(d, 1));
  memory_.write<std::uint64_t>(d + 16, 1);  // ma_used does not fit the entries
  EXPECT_FALSE(values().dict_items(d, 9));
  memory_.write<std::uint64_t>(d + 16, 2);
  memory_.write<std::uint64_t>(table + 24, 1ULL << 40);
  EXPECT_FALSE(values().dict_items(d, 9));
  memory_.write<std::uint64_t>(table + 24, 2);
  memory_.write<std::uint8_t>(table + 8, 63);
  EXPECT_FALSE(values().dict_items(d, 9));
  memory_.write<std::uint8_t>(table + 8, 3);
  memory_.free(table - 64);
  EXPECT_FALSE(values().dict_items(d, 9));
}

TEST_F(TargetValues, ForgedSets) {
  std::uint64_t set_type = type("set", 0, 200);
  std::uint64_t s = object(set_type, 200);
  std::uint64_t table = next(8 * 16);
  std::uint64_t one = integer(1);
  memory_.write(table + 16, one);
  memory_.write<std::int64_t>(table + 24, 11);
  memory_.write(table + 32, one);  // a deleted entry: hash -1
  memory_.write<std::int64_t>(table + 40, -1);
  auto head = [&](std::uint64_t used, std::uint64_t mask) {
    memory_.write(s + 24, used);
    memory_.write(s + 32, mask);
    memory_.write(s + 40, table);
  };
  head(1, 7);
  EXPECT_EQ(*values().set_items(s, 9), std::vector{one});
  head(2, 7);  // there are not so many
  EXPECT_FALSE(values().set_items(s, 9));
  head(1, 6);
  EXPECT_FALSE(values().set_items(s, 9));
  head(1, (1ULL << 40) - 1);
  EXPECT_FALSE(values().set_items(s, 9));
  head(1, 15);  // longer than what is there
  EXPECT_FALSE(values().set_items(s, 9));
  head(1, ~std::uint64_t{0});
  EXPECT_FALSE(values().set_items(s, 9));
}

TEST_F(TargetValues, ForgedDeques) {
  std::uint64_t deque_type = type("collections.deque", 0, 80);
  std::uint64_t d = object(deque_type, 80);
  std::uint64_t left = next(528);
  std::uint64_t right = next(528);
  memory_.write(left + 8 + 63 * 8, integer(1));
  memory_.write(left + 520, right);
  memory_.write(right + 8, integer(2));
  auto head = [&](std::uint64_t size, std::uint64_t first, std::uint64_t last, std::uint64_t from,
                  std::uint64_t to) {
    memory_.write(d + 16, size);
    memory_.write(d + 24, first);
    memory_.write(d + 32, last);
    memory_.write(d + 40, from);
    memory_.write(d + 48, to);
  };
  head(2, left, right, 63, 0);
  EXPECT_EQ(values().deque_items(d, 9)->size(), 2u);
  EXPECT_FALSE(values().deque_items(d, 1));
  head(2, left, right, 63, 1);  // ends elsewhere
  EXPECT_FALSE(values().deque_items(d, 9));
  head(2, left, left, 63, 0);
  EXPECT_FALSE(values().deque_items(d, 9));
  head(2, left, right, 64, 0);
  EXPECT_FALSE(values().deque_items(d, 9));
  head(1ULL << 50, left, right, 63, 0);
  EXPECT_FALSE(values().deque_items(d, 1000));
  // Blocks in a circle end with the length.
  memory_.write(right + 520, left);
  head(1000, left, right, 63, 0);
  int before = memory_.reads;
  EXPECT_FALSE(values().deque_items(d, 1000));
  EXPECT_LT(memory_.reads - before, 200);
  head(0, left, left, 32, 31);
  EXPECT_EQ(values().deque_items(d, 9)->size(), 0u);
}

// ---- attributes ----------------------------------------------------------------------------------

TEST_F(TargetValues, TypesThatAreTheirOwnBase) {
  std::uint64_t first = type("First", kHeapType, 32);
  std::uint64_t second = type("Second", kHeapType, 32, first);
  memory_.write(first + 256, second);
  memory_.write(first + 264, dict({}));
  memory_.write(second + 264, dict({}));
  std::uint64_t o = object(second, 32);
  EXPECT_FALSE(values().attribute(o, "a"));
  EXPECT_FALSE(values().is_a(o, "set"));
  EXPECT_EQ(values().attributes(o, 9)->size(), 0u);
}

TEST_F(TargetValues, SlotsStayInsideTheirObject) {
  std::uint64_t descriptor_type = type("member_descriptor", 0, 72);
  std::uint64_t descriptor = object(descriptor_type, 72);
  std::uint64_t definition = next(32);
  memory_.write(descriptor + 40, definition);
  std::uint64_t owner = type("Owner", kHeapType, 32);
  memory_.write(owner + 264, dict({{text("a"), descriptor}}));
  std::uint64_t o = object(owner, 400);
  memory_.write(o + 24, integer(5));
  auto member = [&](std::uint32_t kind, std::int64_t offset) {
    memory_.write(definition + 8, kind);
    memory_.write(definition + 16, offset);
    auto v = values();
    auto found = v.attribute(o, "a");
    return found && v.read_int(*found) == 5;
  };
  EXPECT_TRUE(member(16, 24));
  EXPECT_FALSE(member(16, 16));  // not set
  memory_.write(o + 32, integer(5));
  EXPECT_FALSE(member(16, 32));  // beyond tp_basicsize
  EXPECT_FALSE(member(16, 20));
  EXPECT_FALSE(member(16, -24));
  EXPECT_FALSE(member(19, 24));  // T_PYSSIZET: no object
}

TEST_F(TargetValues, AManagedDictOf311) {
  std::uint64_t owner = type("Owner", kHeapType | kManagedDict, 24);
  memory_.write(owner + 264, dict({}));
  std::uint64_t a = text("a");
  std::uint64_t b = text("b");
  memory_.write(owner + 872, keys({{a, 0}, {b, 0}}));
  std::uint64_t o = object(owner, 24);
  std::uint64_t held = next(16);
  memory_.write(held, integer(1));
  memory_.write(o - 32, held);
  EXPECT_EQ(values().read_int(values().attribute(o, "a").value_or(0)), 1);
  EXPECT_FALSE(values().attribute(o, "b"));  // not set
  EXPECT_EQ(values().attributes(o, 9)->size(), 1u);
  EXPECT_FALSE(values().attributes(o, 1));         // more names than allowed
  memory_.write(o - 24, dict({{b, integer(2)}}));  // a dict takes over
  EXPECT_EQ(values().read_int(values().attribute(o, "b").value_or(0)), 2);
  EXPECT_FALSE(values().attribute(o, "a"));
  memory_.write(o - 24, list({}));  // what is there is no dict
  EXPECT_FALSE(values().attribute(o, "b"));
  EXPECT_FALSE(values().attributes(o, 9));
}

TEST_F(TargetValues312, AManagedDictOf312) {
  std::uint64_t owner = type("Owner", kHeapType | kManagedDict, 16);
  memory_.write(owner + 264, dict({}));
  std::uint64_t o = object(owner, 16);
  EXPECT_FALSE(values().attribute(o, "a"));
  std::uint64_t held = next(16);
  memory_.write(o - 24, held - 1);
  EXPECT_FALSE(values().attribute(o, "a"));  // the type has no keys
  memory_.write<std::uint64_t>(o - 24, 1);   // tagged, and nothing
  EXPECT_FALSE(values().attribute(o, "a"));
}

TEST_F(TargetValues313, InlineValuesOf313) {
  std::uint64_t owner = type("Owner", kHeapType | kManagedDict | kInlineValues, 16);
  memory_.write(owner + 264, dict({}));
  memory_.write(owner + 880, keys({{text("a"), 0}}));
  std::uint64_t o = object(owner, 40);
  std::uint64_t target = list({});
  memory_.write(o + 24, target);
  memory_.write<std::uint32_t>(o + 16, 0x01'01'01'04);  // capacity 4, size 1, embedded, valid
  EXPECT_EQ(values().attribute(o, "a"), target);
  memory_.write<std::uint32_t>(o + 16, 0x00'01'01'04);  // not valid any more
  EXPECT_FALSE(values().attribute(o, "a"));
  memory_.write<std::uint32_t>(o + 16, 0x01'01'01'00);  // fewer places than keys
  EXPECT_FALSE(values().attribute(o, "a"));
}

TEST_F(TargetValues, ADictBehindABodyOfVariableSize) {
  std::uint64_t owner = type("Owner", kHeapType | 1ULL << 26, 32);
  memory_.write<std::int64_t>(owner + 40, 8);    // tp_itemsize
  memory_.write<std::int64_t>(owner + 288, -8);  // tp_dictoffset
  memory_.write(owner + 264, dict({}));
  std::uint64_t o = object(owner, 64);
  memory_.write<std::int64_t>(o + 16, 2);
  memory_.write(o + 32 + 2 * 8 - 8, dict({{text("a"), integer(3)}}));
  EXPECT_EQ(values().read_int(values().attribute(o, "a").value_or(0)), 3);
  for (std::int64_t size : {std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::min()}) {
    memory_.write(o + 16, size);
    EXPECT_FALSE(values().attribute(o, "a"));
  }
}

// Words that point at each other at random: reading ends, whatever it finds.
TEST_F(TargetValues, RandomMemoryIsHarmless) {
  std::mt19937_64 random(7);
  constexpr std::uint64_t kBase = 0x4000'0000;
  constexpr std::size_t kWords = 1 << 15;
  memory_.allocate(kBase, kWords * 8);
  for (std::size_t i = 0; i < kWords; ++i) {
    std::uint64_t word = random();
    switch (word % 4) {
      case 0:
        word = kBase + word / 4 % kWords * 8;
        break;
      case 1:
        word = std::array{meta_, str_, int_, list_, tuple_, dict_}[word / 4 % 6];
        break;
      case 2:
        word = word / 4 % 64;
        break;
    }
    memory_.write(kBase + 8 * i, word);
  }
  BoundedMemory bounded(memory_, 2'000'000, std::size_t{1} << 32);
  RemoteObjects objects(bounded, layout_);
  RemoteValues v(objects, runtime_);
  std::size_t found = 0;
  for (std::size_t i = 0; i < kWords; i += 2) {
    std::uint64_t at = kBase + 8 * i;
    found += v.value(at).kind != RemoteValue::Kind::kNothing;
    found += v.list_items(at, 100).has_value() + v.tuple_items(at, 100).has_value();
    found += v.dict_items(at, 100).has_value() + v.set_items(at, 100).has_value();
    found += v.deque_items(at, 100).has_value() + v.attributes(at, 100).has_value();
    found += v.attribute(at, "a").has_value();
  }
  EXPECT_GT(found, 100u);
  EXPECT_FALSE(bounded.exhausted());
}

TEST_F(TargetValues, MemoryThatMayBeReadOnlySoMuch) {
  std::uint64_t number = integer(7);
  BoundedMemory calls(memory_, 1, 1 << 20);
  EXPECT_TRUE(calls.read<std::uint64_t>(number));
  EXPECT_FALSE(calls.exhausted());
  EXPECT_FALSE(calls.read<std::uint64_t>(number));
  EXPECT_TRUE(calls.exhausted());
  BoundedMemory bytes(memory_, 100, 15);
  EXPECT_TRUE(bytes.read<std::uint64_t>(number));
  EXPECT_FALSE(bytes.read<std::uint64_t>(number));
  EXPECT_FALSE(bytes.read<std::uint8_t>(number));  // once is for good
}

TEST_F(TargetValues, ManyAtOnce) {
  std::vector<std::uint64_t> objects;
  for (std::uint32_t i = 0; i < 1500; ++i) objects.push_back(i % 3 ? integer(i) : 0);
  auto found = values().values(objects);
  ASSERT_EQ(found.size(), objects.size());
  for (std::uint32_t i = 0; i < 1500; ++i) {
    EXPECT_EQ(found[i].kind, i % 3 ? RemoteValue::Kind::kInt : RemoteValue::Kind::kNothing);
    EXPECT_EQ(found[i].integer, i % 3 ? i : 0);
  }
}

}  // namespace
}  // namespace dynprof
