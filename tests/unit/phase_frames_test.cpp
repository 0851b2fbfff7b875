// Whether a phase whose event was read late is still open.
#include <gtest/gtest.h>

#include <array>

#include "tests/unit/target_fake_memory.h"
#include "user/target/marker_rules.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kFrame = 0x10000, kCode = 0x20000, kNumber = 0x30000, kInt = 0x40000;
constexpr std::int64_t kOffsetNs = 1'700'000'000'000'000'000;  // of the real-time clock
constexpr std::int64_t kBeganNs = 5'000'000'000;
constexpr std::uint16_t kStartSlot = 3;

class PhaseFrames : public ::testing::Test {
 protected:
  PhaseFrames() {
    memory_.allocate(kFrame, 256);
    memory_.write(kFrame + layout_.bpf.frame_base + layout_.bpf.frame_code, kCode);
    type();
    begin_at(kOffsetNs + kBeganNs + 2000);
    functions_[0].code = kCode;
    functions_[0].kind = DP_PHASE_FUNCTION_BOTH;
    functions_[0].start_slot = kStartSlot;
    event_.header.time_ns = kBeganNs;
    event_.frame = kFrame;
    event_.code = kCode;
  }
  void type() {
    memory_.allocate(kInt, 904);
    memory_.allocate(kInt + 0x1000, 904);
    memory_.allocate(kInt + 0x2000, 16);
    memory_.write(kInt + 8, kInt + 0x1000);
    memory_.write(kInt + 0x1000 + 8, kInt + 0x1000);
    memory_.write<std::uint64_t>(kInt + 0x1000 + 168, 1ULL << 31);  // of type itself
    memory_.write(kInt + 24, kInt + 0x2000);
    for (int i = 0; i < 3; ++i) memory_.write(kInt + 0x2000 + i, "int"[i]);
    memory_.write<std::int64_t>(kInt + 32, 24);
    memory_.write<std::uint64_t>(kInt + 168, 1ULL << 24);
  }
  void begin_at(std::int64_t ns) {
    memory_.allocate(kNumber, 48);
    memory_.write(kNumber + 8, kInt);
    memory_.write<std::int64_t>(kNumber + 16, 3);
    for (int i = 0; i < 3; ++i)
      memory_.write(kNumber + 24 + 4 * i,
                    static_cast<std::uint32_t>(ns >> (30 * i)) & ((1U << 30) - 1));
    set_local(kNumber);
  }
  void set_local(std::uint64_t object) {
    memory_.write(kFrame + layout_.bpf.frame_localsplus + 8 * kStartSlot, object);
  }
  std::optional<bool> is_open() {
    return is_phase_open(objects_, runtime_, functions_, event_, kOffsetNs);
  }

  testing::FakeMemory memory_;
  const PythonLayout& layout_ = *measured_layout(python_version(3, 11));
  RemoteObjects objects_{memory_, layout_};
  PythonRuntime runtime_;
  std::array<dp_phase_function, DP_PHASE_FUNCTIONS> functions_{};
  dp_phase_event event_{};
};

TEST_F(PhaseFrames, OpenWhileItsFrameHoldsTheTimeOfTheEvent) { EXPECT_EQ(is_open(), true); }

TEST_F(PhaseFrames, OverWhenAnotherPhaseBeganInTheSameFrame) {
  begin_at(kOffsetNs + kBeganNs + 130'000'000);
  EXPECT_EQ(is_open(), false);
}

TEST_F(PhaseFrames, NotKnownWhenTheClockAnsweredLate) {
  begin_at(kOffsetNs + kBeganNs + 50'000'000);
  EXPECT_EQ(is_open(), std::nullopt);
}

TEST_F(PhaseFrames, OverWhenTheFrameIsOfAnotherFunction) {
  memory_.write(kFrame + layout_.bpf.frame_base + layout_.bpf.frame_code, kCode + 64);
  EXPECT_EQ(is_open(), false);
}

TEST_F(PhaseFrames, OverWhenTheLocalIsNoTime) {
  set_local(kCode);
  EXPECT_EQ(is_open(), false);
}

TEST_F(PhaseFrames, NotKnownBeforeTheTimeIsStored) {
  set_local(0);
  EXPECT_EQ(is_open(), std::nullopt);
}

TEST_F(PhaseFrames, NotKnownOfAFunctionThatKeepsNoTime) {
  functions_[0].kind = DP_PHASE_FUNCTION_BEGIN;
  EXPECT_EQ(is_open(), std::nullopt);
}

}  // namespace
}  // namespace dynprof
