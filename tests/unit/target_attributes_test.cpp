// Attributes by RemoteValues, of objects no interpreter makes.
#include <array>
#include <limits>
#include <random>
#include <string>

#include "tests/unit/target_values_fixture.h"
#include "user/target/bounded_memory.h"

namespace dynprof {
namespace {

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
