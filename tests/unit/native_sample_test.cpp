// The native part of a sample event, and the ranges it is merged by.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "symbolizer/base/unique_fd.h"
#include "symbolizer/symbols/elf_symbols.h"
#include "user/kernel/event_view.h"
#include "user/stacks/eval_ranges.h"

namespace dynprof {
namespace {

std::vector<std::byte> event_of(std::uint16_t frames, std::vector<std::uint64_t> native,
                                std::vector<std::uint64_t> kernel) {
  dp_sample sample = {};
  sample.frame_count = frames;
  sample.native_count = static_cast<std::uint16_t>(native.size());
  sample.kernel_count = static_cast<std::uint16_t>(kernel.size());
  native.insert(native.end(), kernel.begin(), kernel.end());
  const std::size_t size = sizeof sample + frames * sizeof(dp_frame) + native.size() * 8;
  sample.header.size = static_cast<std::uint32_t>(size);
  std::vector<std::byte> bytes(size);
  std::memcpy(bytes.data(), &sample, sizeof sample);
  std::memcpy(bytes.data() + size - native.size() * 8, native.data(), native.size() * 8);
  return bytes;
}

TEST(NativeSample, AddressesFollowTheFrames) {
  const auto bytes = event_of(3, {1 | DP_NATIVE_EXACT, 2}, {7, 8, 9});
  const auto view = decode_sample(bytes);
  ASSERT_TRUE(view);
  ASSERT_EQ(view->native.size(), 2u);
  EXPECT_EQ(view->native[0], 1 | DP_NATIVE_EXACT);
  EXPECT_EQ(view->native[1], 2u);
  ASSERT_EQ(view->kernel.size(), 3u);
  EXPECT_EQ(view->kernel[2], 9u);
  EXPECT_EQ(view->frames.size(), 3u);
}

TEST(NativeSample, CountsMustAgreeWithTheSize) {
  auto bytes = event_of(0, {1, 2}, {});
  dp_sample sample;
  std::memcpy(&sample, bytes.data(), sizeof sample);
  for (std::uint16_t count : {1, 3, DP_MAX_NATIVE_FRAMES + 1, 0xffff}) {
    sample.native_count = count;
    std::memcpy(bytes.data(), &sample, sizeof sample);
    EXPECT_FALSE(decode_sample(bytes)) << count;
  }
  sample.native_count = 0;
  sample.kernel_count = DP_MAX_KERNEL_FRAMES + 1;
  std::memcpy(bytes.data(), &sample, sizeof sample);
  EXPECT_FALSE(decode_sample(bytes));
  sample.kernel_count = 2;
  std::memcpy(bytes.data(), &sample, sizeof sample);
  EXPECT_TRUE(decode_sample(bytes));
}

TEST(EvalRangesTest, EveryPartCounts) {
  const EvalRanges ranges({{0x500, 0x600}, {0x100, 0x180}});
  EXPECT_FALSE(ranges.empty());
  EXPECT_TRUE(ranges.contains(0x100));
  EXPECT_TRUE(ranges.contains(0x17f));
  EXPECT_FALSE(ranges.contains(0x180));
  EXPECT_FALSE(ranges.contains(0xff));
  EXPECT_TRUE(ranges.contains(0x5ff));
  EXPECT_TRUE(EvalRanges().empty());
  EXPECT_FALSE(EvalRanges().contains(0));
}

extern "C" [[gnu::noinline]] int dynprof_test_function_with_parts(int value) { return value * 3; }

TEST(ElfSymbolsTest, PartsOfAFunction) {
  ASSERT_EQ(dynprof_test_function_with_parts(2), 6);
  UniqueFd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  auto symbols = ElfSymbols::read(self.get());
  ASSERT_TRUE(symbols);
  const auto parts = symbols->parts_of("dynprof_test_function_with_parts");
  ASSERT_GE(parts.size(), 1u);
  for (const auto& part : parts) {
    EXPECT_LT(part.begin, part.end);
    const auto name = symbols->find(part.begin);
    ASSERT_TRUE(name);
    EXPECT_TRUE(name->starts_with("dynprof_test_function_with_parts"));
  }
  // Another function that begins with these letters is no part.
  EXPECT_TRUE(symbols->parts_of("dynprof_test_function_with").empty());
}

}  // namespace
}  // namespace dynprof
