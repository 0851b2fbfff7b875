#include "user/torch/line_pace.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

using namespace std::chrono_literals;

// Readings in so much time of one compile, of which each takes no time.
int readings_in(std::chrono::nanoseconds time, LinePace pace) {
  int readings = 0;
  for (std::chrono::nanoseconds at{0}; at < time; ++readings) {
    pace.read(true);
    at += pace.next(0ns);
  }
  return readings;
}

TEST(LinePace, AShortCompileIsRead20TimesASecond) {
  EXPECT_EQ(readings_in(1s, LinePace()), 20);
  EXPECT_EQ(readings_in(1s, LinePace(true)), 20);
}

TEST(LinePace, ALongOneLessAndLessOften) {
  EXPECT_LT(readings_in(10s, LinePace()), 100);
  const int more = readings_in(1200s, LinePace()) - readings_in(1100s, LinePace());
  EXPECT_NEAR(more, 200, 2);
}

TEST(LinePace, AllLinesAreReadAsOftenLater) {
  const LinePace all(true);
  EXPECT_NEAR(readings_in(1200s, all) - readings_in(1100s, all), 2000, 2);
}

TEST(LinePace, OneThatTakesLongIsAHundredthOfACore) {
  LinePace pace(true);
  pace.read(true);
  EXPECT_EQ(pace.next(2ms), 200ms);
  EXPECT_EQ(pace.next(1s), 500ms);
}

TEST(LinePace, WithoutCompilesItIsIdle) {
  LinePace pace;
  for (int i = 0; i < 19; ++i) pace.read(false);
  EXPECT_FALSE(pace.idle());
  pace.read(false);
  EXPECT_TRUE(pace.idle());
  pace.read(true);
  EXPECT_FALSE(pace.idle());
}

}  // namespace
}  // namespace dynprof
