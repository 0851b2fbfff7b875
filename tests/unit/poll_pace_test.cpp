#include "user/session/poll_pace.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kPeriod = 10 * kMs;

dp_sample sample_on(std::uint16_t cpu, std::uint64_t time_ns, bool shows_new) {
  dp_sample sample = {};
  sample.header.cpu = cpu;
  sample.header.time_ns = time_ns;
  if (shows_new) sample.flags = DP_SAMPLE_NEW_CODE;
  return sample;
}

TEST(PollPace, IsCalmWhereNothingIsNew) {
  PollPace pace(kPeriod);
  EXPECT_EQ(pace.wait_ns(1000 * kMs), PollPace::kCalmNs);
}

TEST(PollPace, HurriesForAWhileAfterSomethingNew) {
  PollPace pace(kPeriod);
  pace.hurry(1000 * kMs);
  EXPECT_EQ(pace.wait_ns(1001 * kMs), PollPace::kHurriedNs);
  EXPECT_EQ(pace.wait_ns(1000 * kMs + PollPace::kHurriedForNs), PollPace::kCalmNs);
}

TEST(PollPace, LooksShortlyAfterTheNextSample) {
  PollPace pace(kPeriod);
  pace.sampled(sample_on(3, 1000 * kMs, true));
  EXPECT_EQ(pace.wait_ns(1003 * kMs), 7 * kMs + PollPace::kAfterSampleNs);
  EXPECT_EQ(pace.wait_ns(1024 * kMs), 6 * kMs + PollPace::kAfterSampleNs);
  EXPECT_EQ(pace.wait_ns(1000 * kMs + PollPace::kFollowedForNs), PollPace::kCalmNs);
}

TEST(PollPace, LooksAfterTheSampleOfWhicheverCpuIsNext) {
  PollPace pace(kPeriod);
  pace.sampled(sample_on(0, 1000 * kMs, true));
  pace.sampled(sample_on(1, 1004 * kMs, false));
  EXPECT_EQ(pace.wait_ns(1005 * kMs), 5 * kMs + PollPace::kAfterSampleNs);
  EXPECT_EQ(pace.wait_ns(1011 * kMs), 3 * kMs + PollPace::kAfterSampleNs);
}

TEST(PollPace, IsCalmWhereSamplesShowNothingNew) {
  PollPace pace(kPeriod);
  pace.sampled(sample_on(0, 1000 * kMs, false));
  EXPECT_EQ(pace.wait_ns(1003 * kMs), PollPace::kCalmNs);
}

TEST(PollPace, NeverWaitsLessThanTheShortestTime) {
  PollPace pace(kPeriod);
  for (std::uint16_t cpu = 0; cpu < 100; ++cpu)
    pace.sampled(sample_on(cpu, 1000 * kMs + cpu * kMs / 10, true));
  EXPECT_EQ(pace.wait_ns(1023 * kMs), 2 * kMs);
  PollPace fast(kMs);
  fast.sampled(sample_on(0, 1000 * kMs, true));
  EXPECT_EQ(fast.wait_ns(1005 * kMs), kMs / 2);
  EXPECT_EQ(fast.wait_ns(1005 * kMs + kMs / 2), kMs / 2 + PollPace::kAfterSampleNs);
  PollPace fastest(100'000);
  fastest.sampled(sample_on(0, 1000 * kMs, true));
  EXPECT_EQ(fastest.wait_ns(1005 * kMs), 250'000u);
}

TEST(PollPace, HurriesWhereSamplesComeAtNoKnownTimes) {
  PollPace pace(0);
  pace.sampled(sample_on(0, 1000 * kMs, true));
  EXPECT_EQ(pace.wait_ns(1003 * kMs), PollPace::kHurriedNs);
}

}  // namespace
}  // namespace dynprof
