// user/symbols/split_parts: which code belongs to a function, by its jumps.
#include "user/symbols/split_parts.h"

#include <gtest/gtest.h>

#include "tests/unit/unwind_fake_elf.h"

namespace dynprof {
namespace {

using fake_elf::Bytes;
using fake_elf::kCodeAddress;

constexpr std::uint64_t kHot = 0x4000, kHotSize = 0x200;  // offsets in the file
constexpr std::uint64_t kCold = 0x2000, kColdSize = 0x100;
constexpr std::uint64_t kOther = 0x3000, kOtherSize = 0x80;

class SplitParts : public testing::Test {
 protected:
  SplitParts() {
    fake_elf::File file = fake_elf::file_of({{kCodeAddress + kHot, kHotSize, {}, 0},
                                             {kCodeAddress + kCold, kColdSize, {}, 0},
                                             {kCodeAddress + kOther, kOtherSize, {}, 0}});
    image_ = fake_elf::make(file);
    image_.resize(fake_elf::kCodeSize, 0x90);
  }

  void jump(std::uint64_t to, bool conditional = true) {
    if (conditional) image_[next_++] = 0x0f;
    image_[next_++] = conditional ? 0x84 : 0xe9;
    const auto distance = static_cast<std::uint32_t>(to - (next_ + 4));
    std::memcpy(&image_[next_], &distance, sizeof distance);
    next_ += 4;
  }

  std::vector<ElfSymbols::Range> parts(ElfSymbols::Range of = {kHot, kHot + kHotSize}) const {
    return split_parts(ByteSource::of_bytes(image_), of);
  }

  Bytes image_;
  std::size_t next_ = kHot;
};

TEST_F(SplitParts, IsWhereManyJumpsLead) {
  for (std::uint64_t i = 1; i <= 8; ++i) jump(kCold + 9 * i, i % 2 == 0);
  const auto found = parts();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].begin, kCold);
  EXPECT_EQ(found[0].end, kCold + kColdSize);
}

TEST_F(SplitParts, CallsAndTailCallsAreOfOtherFunctions) {
  for (int i = 0; i < 20; ++i) jump(kOther, i % 2 == 0);  // to its first byte
  for (std::uint64_t i = 0; i < 20; ++i) jump(kHot + 10 * i);
  EXPECT_TRUE(parts().empty());
}

TEST_F(SplitParts, BytesThatLookLikeAJumpAreFew) {
  jump(kOther + 7);
  jump(kOther + 21, false);
  EXPECT_TRUE(parts().empty());
}

TEST_F(SplitParts, NothingOutsideOfTheFile) {
  for (int i = 0; i < 20; ++i) jump(0x7000'0000);
  EXPECT_TRUE(parts().empty());
  EXPECT_TRUE(parts({kHot, kHot}).empty());
  EXPECT_TRUE(parts({kHot + 8, kHot}).empty());
  EXPECT_TRUE(parts({kHot, ~std::uint64_t{0}}).empty());
  EXPECT_TRUE(parts({~std::uint64_t{0} - 16, ~std::uint64_t{0}}).empty());
  image_.resize(64);
  EXPECT_TRUE(parts().empty());
  image_.clear();
  EXPECT_TRUE(parts().empty());
}

}  // namespace
}  // namespace dynprof
