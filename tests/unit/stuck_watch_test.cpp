// A call of ours that a target keeps from returning is seen, and a short one is not.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "user/session/stuck_watch.h"
#include "user/target/awaiting_target.h"

namespace dynprof {
namespace {

using std::chrono::milliseconds;

TEST(StuckWatch, ReportsACallThatDoesNotReturn) {
  std::string told;
  {
    std::atomic<bool> said{false};
    StuckWatch watch(
        [&](const std::string& sentence) {
          told = sentence;
          said = true;
        },
        milliseconds(50));
    { const AwaitingTarget short_wait(1); }
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_FALSE(said);
    const AwaitingTarget awaiting(4711);
    const AwaitingTarget inner(1);
    for (int i = 0; i < 500 && !said; ++i) std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(told, "reading process 4711 does not return");
}

}  // namespace
}  // namespace dynprof
