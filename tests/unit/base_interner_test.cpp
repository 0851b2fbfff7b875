#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "symbolizer/base/interner.h"
#include "symbolizer/recording/stack_table.h"

namespace dynprof {
namespace {

struct IntHash {
  std::uint64_t operator()(int value) const { return hash_u64(static_cast<unsigned>(value)); }
};
// Everything collides: only == tells.
struct BadHash {
  std::uint64_t operator()(int) const { return 7; }
};

TEST(BytesInterner, OneIdPerContent) {
  BytesInterner interner(10);
  for (int round = 0; round < 2; ++round) {
    for (unsigned i = 0; i < 20'000; ++i) {
      ASSERT_EQ(interner.intern(fmt::format("text {}", i)), 10 + i);
    }
  }
  EXPECT_EQ(interner.entries().size(), 20'000u);
  EXPECT_EQ(interner.entries()[19'999], "text 19999");
  EXPECT_EQ(interner.next_id(), 20'010u);
}

TEST(BytesInterner, AnyBytesAnyLength) {
  BytesInterner interner(0);
  std::vector<std::string> texts = {"", std::string(1, '\0'), std::string(2, '\0'),
                                    std::string(200'000, 'x'), std::string(200'001, 'x')};
  for (std::uint32_t i = 0; i < texts.size(); ++i) EXPECT_EQ(interner.intern(texts[i]), i);
  for (std::uint32_t i = 0; i < texts.size(); ++i) EXPECT_EQ(interner.entries()[i], texts[i]);
}

TEST(BytesInterner, ForgetKeepsTheNumbering) {
  BytesInterner interner(0);
  interner.intern("a");
  interner.intern("b");
  EXPECT_GT(interner.stored_bytes(), 0u);
  interner.forget();
  EXPECT_EQ(interner.stored_bytes(), 0u);
  EXPECT_EQ(interner.first_id(), 2u);
  EXPECT_EQ(interner.intern("b"), 2u);
  EXPECT_EQ(interner.intern("a"), 3u);
  EXPECT_EQ(interner.intern("b"), 2u);
}

TEST(ValueInterner, OneIdPerValue) {
  ValueInterner<int, IntHash> interner(1);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 5000; ++i) {
      ASSERT_EQ(interner.intern(i * 3), 1 + static_cast<unsigned>(i));
    }
  }
  interner.forget();
  EXPECT_EQ(interner.intern(3), 5001u);
}

TEST(ValueInterner, CollisionsAreDistinguished) {
  ValueInterner<int, BadHash> interner(0);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 300; ++i) ASSERT_EQ(interner.intern(i), static_cast<unsigned>(i));
  }
}

TEST(StackTable, FindsWhatWasEntered) {
  recording::StackTable table;
  StackId next = 1;
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t caller = 0; caller < 300; ++caller) {
      for (std::uint32_t frame = 0; frame < 100; ++frame) {
        StackId* id = table.find({caller, frame});
        if (round == 1) {
          ASSERT_EQ(*id, caller * 100 + frame + 1);
          continue;
        }
        ASSERT_EQ(*id, 0u);
        *id = next++;
        table.entered();
      }
    }
  }
  EXPECT_EQ(table.size(), 30'000u);
  table.clear();
  EXPECT_EQ(*table.find({5, 5}), 0u);
}

}  // namespace
}  // namespace dynprof
