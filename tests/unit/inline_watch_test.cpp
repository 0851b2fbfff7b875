#include "user/torch/inline_watch.h"

#include <gtest/gtest.h>

namespace dynprof {
namespace {

TEST(InlineWatch, IsWantedFromTheBeginOfACompileUntilDynamoHasTraced) {
  InlineWatch watch;
  watch.phase_begins("dynamo");
  EXPECT_TRUE(watch.wanted());
  watch.phase_begins("entire_frame_compile");
  watch.phase_begins("compile_attempt_0");
  watch.phase_begins("bytecode_tracing");
  EXPECT_TRUE(watch.tracing());
  watch.phase_ends("bytecode_tracing", false);
  EXPECT_FALSE(watch.wanted());
  for (const char* phase : {"backend_compile", "inductor_compile", "build_guards", "gc"}) {
    watch.phase_begins(phase);
    EXPECT_FALSE(watch.wanted()) << phase;
    watch.phase_ends(phase, false);
  }
}

TEST(InlineWatch, IsWantedAgainInAnotherAttempt) {
  InlineWatch watch;
  watch.phase_begins("dynamo");
  watch.phase_begins("bytecode_tracing");
  watch.phase_ends("bytecode_tracing", false);
  watch.phase_begins("compile_attempt_1");
  EXPECT_TRUE(watch.wanted());
}

TEST(InlineWatch, IsNotWantedInBackwardsNorAtRunTime) {
  InlineWatch watch;
  for (const char* phase : {"entire_backward_compile", "compile_fx_inner", "gc"}) {
    watch.phase_begins(phase);
    EXPECT_FALSE(watch.wanted()) << phase;
  }
}

TEST(InlineWatch, EndsWithTheOutermostPhase) {
  InlineWatch watch;
  watch.phase_begins("dynamo");  // the frame is skipped: nothing is traced
  watch.phase_ends("dynamo", true);
  EXPECT_FALSE(watch.wanted());
}

}  // namespace
}  // namespace dynprof
