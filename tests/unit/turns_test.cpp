#include "user/session/turns.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace dynprof {
namespace {

TEST(Turns, VisitsEachElementOnceInARound) {
  std::map<int, int> counts = {{3, 0}, {5, 0}, {9, 0}};
  Turns<int> turns;
  for (int round = 1; round <= 3; ++round) {
    turns.round(counts, [](int, int& count) {
      ++count;
      return true;
    });
    for (auto [key, count] : counts) EXPECT_EQ(count, round) << key;
  }
}

TEST(Turns, ARoundCutShortGoesOnWhereItStopped) {
  std::map<int, int> processes = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}};
  Turns<int> turns;
  std::vector<int> seen;
  for (int i = 0; i < 4; ++i) {
    int left = 2;  // as many as the time is enough for
    turns.round(processes, [&](int key, int&) {
      seen.push_back(key);
      return --left > 0;
    });
  }
  EXPECT_EQ(seen, (std::vector{1, 2, 3, 4, 5, 1, 2, 3}));
}

TEST(Turns, GoesOnAfterAnElementThatIsGone) {
  std::map<int, int> processes = {{1, 0}, {2, 0}, {3, 0}};
  Turns<int> turns;
  int seen = 0;
  const auto one = [&](int key, int&) {
    seen = key;
    return false;
  };
  turns.round(processes, one);
  turns.round(processes, one);
  processes.erase(2);
  turns.round(processes, one);
  EXPECT_EQ(seen, 3);
  processes.clear();
  turns.round(processes, one);
  EXPECT_EQ(seen, 3);
}

}  // namespace
}  // namespace dynprof
