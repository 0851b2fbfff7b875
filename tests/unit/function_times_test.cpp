// CPU and waits by Python function, as `top` adds them up, and the stacks that they come from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "user/functions/function_writer.h"
#include "user/top/function_times.h"

namespace dynprof {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Use = FunctionTimes::Use;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kSample = 10'000'000;

class FunctionTimesTest : public ::testing::Test {
 protected:
  FunctionTimes times;
  FunctionTimes::Id step = times.function({"step", "/home/me/train.py", 10}, true);
  FunctionTimes::Id forward = times.function({"forward", "/torch/nn/linear.py", 5}, false);

  void sample(std::uint64_t at_ns, std::vector<FunctionTimes::Id> stack) {
    times.add({Use::kCpu, at_ns, at_ns, kSample, std::move(stack)});
  }
  TopFunction row(const std::string& name, std::uint64_t now_ns,
                  std::span<const FunctionTimes::Stretch> open = {}) {
    for (const TopFunction& row : times.rows(now_ns, open))
      if (row.place.function == name) return row;
    ADD_FAILURE() << "no function " << name;
    return {};
  }
};

TEST_F(FunctionTimesTest, SelfIsTheLeafAndAllIsEachFunctionOnce) {
  sample(100 * kSecond, {forward, step, forward, step});
  sample(101 * kSecond, {step});
  EXPECT_DOUBLE_EQ(row("step", 102 * kSecond).now.cpu_self_s, 0.01);
  EXPECT_DOUBLE_EQ(row("step", 102 * kSecond).now.cpu_all_s, 0.02);
  EXPECT_DOUBLE_EQ(row("forward", 102 * kSecond).now.cpu_self_s, 0.01);
  EXPECT_DOUBLE_EQ(row("forward", 102 * kSecond).now.cpu_all_s, 0.01);
  EXPECT_DOUBLE_EQ(row("step", 102 * kSecond).total.cpu_all_s, 0.02);
  EXPECT_TRUE(row("step", 102 * kSecond).user);
  EXPECT_FALSE(row("forward", 102 * kSecond).user);
}

TEST_F(FunctionTimesTest, TheLastSecondsForgetAndTheTotalDoesNot) {
  sample(100 * kSecond, {step});
  EXPECT_DOUBLE_EQ(row("step", 109 * kSecond).now.cpu_self_s, 0.01);
  EXPECT_DOUBLE_EQ(row("step", 110 * kSecond).now.cpu_self_s, 0);
  EXPECT_DOUBLE_EQ(row("step", 110 * kSecond).total.cpu_self_s, 0.01);
  // The same slot is used again.
  sample(110 * kSecond, {step});
  EXPECT_DOUBLE_EQ(row("step", 110 * kSecond).now.cpu_self_s, 0.01);
  EXPECT_DOUBLE_EQ(row("step", 110 * kSecond).total.cpu_self_s, 0.02);
}

TEST_F(FunctionTimesTest, ALongWaitCountsForTheSecondsItWasIn) {
  times.add({Use::kWait, 80 * kSecond, 100 * kSecond, 20 * kSecond, {step}});
  EXPECT_NEAR(row("step", 100 * kSecond).now.wait_self_s, 9, 1e-6);
  EXPECT_NEAR(row("step", 105 * kSecond).now.wait_self_s, 4, 1e-6);
  EXPECT_DOUBLE_EQ(row("step", 105 * kSecond).total.wait_self_s, 20);
  EXPECT_DOUBLE_EQ(row("step", 105 * kSecond).total.cpu_all_s, 0);
}

TEST_F(FunctionTimesTest, AWaitToldLateDoesNotReplaceNewerSeconds) {
  sample(110 * kSecond, {step});
  times.add({Use::kWait, 100 * kSecond, 100 * kSecond + kSample, kSample, {step}});
  EXPECT_DOUBLE_EQ(row("step", 110 * kSecond).now.cpu_self_s, 0.01);
  EXPECT_DOUBLE_EQ(row("step", 110 * kSecond).total.wait_self_s, 0.01);
}

TEST_F(FunctionTimesTest, AWaitThatGoesOnIsShownAndNotKept) {
  const FunctionTimes::Stretch open = {
      Use::kWait, 95 * kSecond, 100 * kSecond, 5 * kSecond, {forward, step}};
  EXPECT_NEAR(row("step", 100 * kSecond, {&open, 1}).now.wait_all_s, 5, 1e-6);
  EXPECT_DOUBLE_EQ(row("step", 100 * kSecond, {&open, 1}).now.wait_self_s, 0);
  EXPECT_NEAR(row("forward", 100 * kSecond, {&open, 1}).total.wait_self_s, 5, 1e-6);
  EXPECT_THAT(times.rows(100 * kSecond, {}), IsEmpty());
}

TEST_F(FunctionTimesTest, FunctionsBeyondTheLimitAreNotKnown) {
  for (std::size_t i = 0; i < 2 * FunctionTimes::kMaxFunctions; ++i)
    times.function({fmt::format("f{}", i), "<string>", 1}, false);
  EXPECT_EQ(times.function({"one more", "<string>", 1}, false), FunctionTimes::kUnknown);
  EXPECT_EQ(times.function({"step", "/home/me/train.py", 10}, true), step);
  sample(100 * kSecond, {FunctionTimes::kUnknown, step});
  EXPECT_DOUBLE_EQ(row("step", 100 * kSecond).total.cpu_self_s, 0);
  EXPECT_DOUBLE_EQ(row("step", 100 * kSecond).total.cpu_all_s, 0.01);
}

TEST_F(FunctionTimesTest, TheFunctionsWithMostTimeAreKept) {
  for (std::size_t i = 0; i < FunctionTimes::kMaxRows + 10; ++i)
    sample(100 * kSecond, {times.function({fmt::format("f{}", i), "<string>", 1}, false)});
  sample(100 * kSecond, {step});
  sample(100 * kSecond, {step});
  EXPECT_EQ(times.rows(100 * kSecond, {}).size(), FunctionTimes::kMaxRows);
  EXPECT_DOUBLE_EQ(row("step", 100 * kSecond).total.cpu_self_s, 0.02);
}

class FunctionWriterTest : public ::testing::Test {
 protected:
  FrameId python(const char* name, std::int32_t unit = 1) {
    Code code;
    code.filename = writer().string("/home/me/train.py");
    code.name = code.qualname = writer().string(name);
    code.first_line = 3;
    Frame frame;
    frame.code = writer().code(code);
    frame.unit = unit;
    return writer().frame(frame);
  }
  RecordingWriter& writer() { return functions; }

  FunctionTimes times;
  FunctionWriter functions{times, {}};
};

TEST_F(FunctionWriterTest, AStackHasItsPythonFunctionsFromTheLeaf) {
  const FrameId outer = python("outer"), inner = python("inner");
  Frame native;
  native.kind = FrameKind::kKernel;
  native.offset = 0x1000;
  StackId stack = writer().stack({0, outer});
  stack = writer().stack({stack, inner});
  stack = writer().stack({stack, writer().frame(native)});
  EXPECT_THAT(functions.functions(stack), ElementsAre(inner, outer));
  EXPECT_EQ(python("inner", 7), inner);
  EXPECT_THAT(functions.functions(0), IsEmpty());
  EXPECT_THAT(functions.functions(stack + 1), IsEmpty());
}

TEST_F(FunctionWriterTest, AForgottenStackNamesNoOther) {
  const StackId kept = writer().stack({0, python("outer")});
  StackId stack = kept;
  for (int i = 0; i < 600'000; ++i) stack = writer().stack({stack, 1});
  functions.bound_memory();
  EXPECT_THAT(functions.functions(kept), IsEmpty());
  const StackId anew = writer().stack({0, python("outer")});
  EXPECT_GT(anew, stack);
  EXPECT_THAT(functions.functions(anew), ElementsAre(1));
}

TEST_F(FunctionWriterTest, WaitsThatEndedAndThatGoOn) {
  Wait wait;
  wait.kind = WaitKind::kFutex;
  wait.begin_ns = 100 * kSecond;
  wait.span_ns = wait.length_ns = 2 * kSecond;
  wait.runnable_ns = kSecond / 2;
  wait.stack = writer().stack({0, python("outer")});
  writer().wait(wait);
  wait.flags = kWaitAtEnd;
  writer().wait(wait);
  wait.kind = WaitKind::kPreempted;
  writer().wait(wait);
  const auto rows = times.rows(102 * kSecond, {});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_DOUBLE_EQ(rows[0].total.wait_self_s, 1.5);
  EXPECT_TRUE(rows[0].user);
  EXPECT_EQ(functions.take_open().size(), 1U);
  EXPECT_THAT(functions.take_open(), IsEmpty());
}

}  // namespace
}  // namespace dynprof
