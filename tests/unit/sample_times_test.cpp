// What samples stand for, by the clock of their thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "symbolizer/attribution/sample_times.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kMs = 1'000'000;

class SampleTimesTest : public testing::Test {
 protected:
  SampleTimesTest() {
    fake.edit_meta().period_ns = 10 * kMs;
    thread = fake.thread(100, 100);
    stack = fake.stack({fake.python("train.py", "main", 10, 12)});
    start = fake.now();
  }
  void clock(std::uint64_t at_ms, std::uint64_t cpu_ms) {
    fake.ran(thread, start + at_ms * kMs, cpu_ms * kMs);
  }
  void sample(std::uint64_t at_ms) { fake.sample_at(start + at_ms * kMs, thread, stack); }
  std::vector<std::uint64_t> times_in_ms() {
    Spans spans(fake.tables(), {});
    ThreadClocks clocks(fake.tables(), spans);
    SampleTimes times(fake, spans, clocks);
    std::vector<std::uint64_t> list;
    for (std::size_t i = 0; i < fake.sample_count(); ++i) list.push_back(times.of(i) / kMs);
    return list;
  }

  FakeRecording fake;
  ThreadId thread = 0;
  StackId stack = 0;
  std::uint64_t start = 0;
};

TEST_F(SampleTimesTest, WithoutAClockEachIsAPeriod) {
  for (std::uint64_t at : {0, 10, 200}) sample(at);
  EXPECT_THAT(times_in_ms(), ElementsAre(10, 10, 10));
}

TEST_F(SampleTimesTest, OfAThreadThatRunsAllTheTimeEachIsAPeriod) {
  clock(0, 0);
  clock(100, 100);
  for (std::uint64_t at : {20, 30, 40, 50}) sample(at);
  EXPECT_THAT(times_in_ms(), ElementsAre(10, 10, 10, 10));
}

// Preempted behind each sample for 6 ms of 10: a period each would be more than twice what it had.
TEST_F(SampleTimesTest, TurnsThatEndWithASampleAreWorthWhatTheyWere) {
  for (std::uint64_t turn = 0; turn < 5; ++turn) {
    clock(turn * 10, turn * 4);
    clock(turn * 10 + 4, turn * 4 + 4);
    sample(turn * 10 + 4);
  }
  EXPECT_THAT(times_in_ms(), ElementsAre(7, 4, 4, 4, 7)) << "both ends are half a period more";
}

// A turn without a sample goes to its neighbours.
TEST_F(SampleTimesTest, NothingThatRanIsLeftOut) {
  clock(0, 0);
  sample(10);
  clock(20, 20);
  clock(90, 20);
  clock(98, 28);
  clock(150, 28);
  sample(152);
  clock(160, 38);
  EXPECT_THAT(times_in_ms(), ElementsAre(15, 15));
}

TEST_F(SampleTimesTest, LostSamplesAreNotCountedByOthers) {
  clock(0, 0);
  clock(2000, 2000);
  for (std::uint64_t at : {100, 110, 1900, 1910}) sample(at);
  EXPECT_THAT(times_in_ms(), ElementsAre(10, 10, 10, 10));
}

// Samples of a millisecond, and a virtual machine that its host did not run for 60.
TEST_F(SampleTimesTest, TimeInWhichNoneCouldBeTakenIsSharedByTheTwoAroundIt) {
  fake.edit_meta().period_ns = kMs;
  clock(0, 0);
  clock(100, 100);
  for (std::uint64_t at : {10, 12, 72, 74}) sample(at);
  EXPECT_THAT(times_in_ms(), ElementsAre(1, 31, 31, 1));
}

TEST_F(SampleTimesTest, OutsideOfWhatIsKnownAPeriodIsTaken) {
  clock(20, 0);
  clock(40, 8);
  for (std::uint64_t at : {0, 20, 40, 60}) sample(at);
  EXPECT_THAT(times_in_ms(), ElementsAre(10, 9, 9, 10));
}

TEST_F(SampleTimesTest, AnAbsurdPeriodIsHarmless) {
  fake.edit_meta().period_ns = ~std::uint64_t{0};
  clock(0, 0);
  clock(100, 100);
  sample(20);
  EXPECT_EQ(times_in_ms().at(0), ~std::uint64_t{0} / kMs);
}

}  // namespace
}  // namespace dynprof
