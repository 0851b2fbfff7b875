#include "user/gpu/call_probes.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

constexpr std::uint64_t kStub = 0x7f00'0000'1000, kSp = 0x7fff'0000'2000;

std::uint32_t lower(std::uint64_t value) { return static_cast<std::uint32_t>(value); }

TEST(CallProbes, AStubIsOfTheNextLaunchDeeperInTheSameThread) {
  CallProbes calls(1);
  EXPECT_EQ(calls.take_stub(7, lower(kSp)), 0u);
  calls.stub(7, kStub, kSp);
  EXPECT_EQ(calls.take_stub(8, lower(kSp - 100)), 0u) << "another thread";
  EXPECT_EQ(calls.take_stub(7, lower(kSp - 100)), kStub);
  EXPECT_EQ(calls.take_stub(7, lower(kSp - 100)), 0u) << "it is of one launch";
}

TEST(CallProbes, AStubWhoseLaunchFailedIsOfNoOther) {
  CallProbes calls(1);
  calls.stub(7, kStub, kSp);
  EXPECT_EQ(calls.take_stub(7, lower(kSp + 64)), 0u) << "the runtime has returned";
  calls.stub(7, kStub, kSp);
  EXPECT_EQ(calls.take_stub(7, lower(kSp - (1 << 20))), 0u) << "too deep to be the same";
  EXPECT_EQ(calls.take_stub(7, lower(kSp - 100)), 0u);
}

TEST(CallProbes, TheStackPointerMayCrossFourGigabytes) {
  CallProbes calls(1);
  calls.stub(7, kStub, 0x7fff'0000'0010);
  EXPECT_EQ(calls.take_stub(7, lower(0x7ffe'ffff'fff0)), kStub);
}

}  // namespace
}  // namespace dynprof
