// RemoteValues against objects no interpreter makes: forged, cyclic, torn, freed.
#include <array>
#include <limits>
#include <random>
#include <string>

#include "tests/unit/target_values_fixture.h"
#include "user/target/bounded_memory.h"

namespace dynprof {
namespace {

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

}  // namespace
}  // namespace dynprof
