#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "symbolizer/profile/timeline.h"
#include "tests/unit/fake_recording.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kPeriod = 10'000'000;

struct Drawn {
  std::uint64_t begin, end;
  std::uint32_t depth;
  bool operator==(const Drawn&) const = default;
};

// Any two slices of a row are apart or one is inside the other and begins later.
template <class Slice>
void expect_nested(std::vector<Slice> slices) {
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return std::tuple(a.begin_ns, b.end_ns) < std::tuple(b.begin_ns, a.end_ns);
  });
  std::vector<Slice> open;
  for (const Slice& slice : slices) {
    ASSERT_LT(slice.begin_ns, slice.end_ns);
    while (!open.empty() && open.back().end_ns <= slice.begin_ns) open.pop_back();
    if (!open.empty()) {
      ASSERT_LT(open.back().begin_ns, slice.begin_ns);
      ASSERT_LE(slice.end_ns, open.back().end_ns);
    }
    open.push_back(slice);
  }
}

class FrameRowTest : public testing::Test {
 protected:
  FrameId at(const char* function, std::int32_t line) {
    return fake.python("a.py", function, 1, line);
  }
  void add(std::uint64_t periods_x10, StackId stack, std::uint32_t skip = 0, bool cut = false) {
    row().add(periods_x10 * kPeriod / 10, stack, skip, cut, emit);
  }
  FrameRow& row() {
    if (!row_) {
      index_ = std::make_unique<StackIndex>(fake.tables());
      row_ = std::make_unique<FrameRow>(*index_, kPeriod);
    }
    return *row_;
  }
  // function -> its slices; times in tenths of a period, the nanoseconds of nesting rounded away.
  std::map<std::string, std::vector<Drawn>> drawn() {
    row().close(emit);
    expect_nested(slices);
    std::map<std::string, std::vector<Drawn>> result;
    ResolvedFrames frames(fake.tables());
    for (const FrameSlice& slice : slices) {
      std::string name =
          slice.frame == kRootMissing ? "missing" : std::string(frames[slice.frame].function);
      result[name].push_back(
          {slice.begin_ns * 10 / kPeriod, slice.end_ns * 10 / kPeriod, slice.depth});
    }
    return result;
  }

  FakeRecording fake;
  std::vector<FrameSlice> slices;
  FrameRow::Emit emit = [this](const FrameSlice& slice) { slices.push_back(slice); };

 private:
  std::unique_ptr<StackIndex> index_;
  std::unique_ptr<FrameRow> row_;
};

TEST_F(FrameRowTest, AFunctionThatStaysIsOneSliceAndKeepsItsFirstLine) {
  StackId a = fake.stack({at("main", 2), at("f", 3), at("g", 4)});
  StackId b = fake.stack({at("main", 2), at("f", 9), at("g", 4)});
  StackId c = fake.stack({at("main", 2), at("f", 9), at("h", 4)});
  for (auto [time, stack] : {std::pair(100, a), {110, a}, {120, b}, {130, c}}) {
    add(static_cast<std::uint64_t>(time), stack);
  }
  auto got = drawn();
  EXPECT_EQ(got["main"], (std::vector<Drawn>{{100, 140, 0}}));
  EXPECT_EQ(got["f"], (std::vector<Drawn>{{100, 140, 1}}));
  EXPECT_EQ(got["g"], (std::vector<Drawn>{{100, 130, 2}}));
  EXPECT_EQ(got["h"], (std::vector<Drawn>{{130, 140, 2}}));
  for (const FrameSlice& slice : slices) {
    if (slice.depth == 1) {
      EXPECT_EQ(slice.frame, at("f", 3));
    }
  }
}

TEST_F(FrameRowTest, AGapOfMoreThanTwoPeriodsIsNotBridged) {
  StackId a = fake.stack({at("main", 2)});
  add(100, a);
  add(120, a);  // two periods: bridged
  add(141, a);  // more: not
  EXPECT_EQ(drawn()["main"], (std::vector<Drawn>{{100, 130, 0}, {141, 151, 0}}));
}

TEST_F(FrameRowTest, ADifferentStackAfterAGapEndsTheOldOneAfterOnePeriod) {
  StackId before = fake.stack({at("main", 2), at("f", 2)});
  StackId later = fake.stack({at("main", 2), at("g", 2)});
  add(100, before);
  add(115, later);  // ends f where g is first seen
  add(200, later);
  auto got = drawn();
  EXPECT_EQ(got["f"], (std::vector<Drawn>{{100, 115, 1}}));
  EXPECT_EQ(got["g"], (std::vector<Drawn>{{115, 125, 1}, {200, 210, 1}}));
  EXPECT_EQ(got["main"], (std::vector<Drawn>{{100, 125, 0}, {200, 210, 0}}));
}

TEST_F(FrameRowTest, RecursionIsOneSlicePerDepth) {
  StackId two = fake.stack({at("f", 2), at("f", 2)});
  StackId three = fake.stack({at("f", 2), at("f", 2), at("f", 2)});
  add(100, two);
  add(110, three);
  add(120, two);
  EXPECT_EQ(drawn()["f"], (std::vector<Drawn>{{110, 120, 2}, {100, 130, 1}, {100, 130, 0}}));
}

TEST_F(FrameRowTest, TheRootSideCanBeLeftOutOrBeMissing) {
  StackId stack = fake.stack({at("main", 2), at("f", 2)});
  StackId other = fake.stack({at("main", 2), at("g", 2)});
  add(100, stack, 1);
  add(110, stack, 1);
  add(120, stack, 0, true);
  add(130, other, 0, true);
  add(140, 0, 0);
  auto got = drawn();
  EXPECT_EQ(got["f"], (std::vector<Drawn>{{100, 120, 0}, {120, 130, 2}}));
  EXPECT_EQ(got["g"], (std::vector<Drawn>{{130, 140, 2}}));
  EXPECT_EQ(got["main"], (std::vector<Drawn>{{120, 140, 1}}));
  EXPECT_EQ(got["missing"], (std::vector<Drawn>{{120, 140, 0}}));
}

TEST_F(FrameRowTest, NativeFramesAreTheSameFunctionAtAnyOffset) {
  StackId a = fake.stack({fake.native("f", "lib.so", 8)});
  StackId b = fake.stack({fake.native("f", "lib.so", 16)});
  StackId c = fake.stack({fake.native("f", "other.so", 16)});
  add(100, a);
  add(110, b);
  add(120, c);
  EXPECT_EQ(drawn()["f"], (std::vector<Drawn>{{100, 120, 0}, {120, 130, 0}}));
}

TEST(StackIndexTest, DamagedCallersEndTheStack) {
  FakeRecording fake;
  FrameId f = fake.python("a.py", "f", 1);
  fake.edit_tables().stacks = {{0, 0}, {2, f}, {1, f}, {3, f}, {1, f}};  // 1 -> 2, 3 -> 3
  StackIndex index(fake.tables());
  EXPECT_EQ(index.depth(1), 1u);
  EXPECT_EQ(index.caller(1), 0u);
  EXPECT_EQ(index.depth(2), 2u);
  EXPECT_EQ(index.depth(3), 1u);
  EXPECT_EQ(index.depth(4), 2u);
}

// Whatever comes: slices nest, and at each sample's moment exactly its stack is drawn.
TEST(TimelineProperty, RandomStacksAreDrawnAsTheyWere) {
  std::mt19937 random(7);
  auto pick = [&](std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); };
  for (int round = 0; round < 200; ++round) {
    FakeRecording fake;
    std::vector<StackId> stacks = {0};
    for (int i = 0; i < 40; ++i) {
      std::string name(1, static_cast<char>('a' + pick(4)));
      StackId caller = stacks[pick(static_cast<std::uint32_t>(stacks.size()))];
      FrameId frame = fake.python("x.py", name, 1, static_cast<int>(2 + pick(3)));
      stacks.push_back(fake.stack({frame}, caller));
    }
    StackIndex index(fake.tables());
    FrameRow row(index, kPeriod);
    std::vector<FrameSlice> slices;
    auto emit = [&](const FrameSlice& slice) { slices.push_back(slice); };
    struct Shown {
      std::uint64_t time;
      StackId stack;
      std::uint32_t skip;
      bool cut;
    };
    std::vector<Shown> samples;
    std::uint64_t now = kPeriod;
    bool orderly = round % 2 == 0;
    for (int i = 0; i < 100; ++i) {
      Shown shown{now, stacks[pick(static_cast<std::uint32_t>(stacks.size()))],
                  pick(8) == 0 ? pick(3) : 0, pick(10) == 0};
      samples.push_back(shown);
      row.add(shown.time, shown.stack, shown.skip, shown.cut, emit);
      now += orderly ? kPeriod / 10 + pick(3 * kPeriod) : pick(40);
      if (!orderly && pick(5) == 0) now -= std::min<std::uint64_t>(now, pick(100));
    }
    row.close(emit);
    expect_nested(slices);
    if (HasFatalFailure()) return;
    if (!orderly) continue;
    for (const Shown& shown : samples) {
      std::map<std::uint32_t, std::uint32_t> expected, got;  // depth -> function
      std::uint32_t depth = 0;
      if (shown.cut) expected[depth++] = kRootMissing;
      std::vector<StackId> path;
      for (StackId node = shown.stack; index.depth(node) > 0; node = index.caller(node)) {
        path.push_back(node);
      }
      std::reverse(path.begin(), path.end());
      for (std::size_t i = shown.skip; i < path.size(); ++i) {
        expected[depth++] = index.function(path[i]);
      }
      std::uint64_t moment = shown.time + 1000;
      for (const FrameSlice& slice : slices) {
        if (slice.begin_ns > moment || slice.end_ns <= moment) continue;
        bool added =
            got.emplace(slice.depth,
                        slice.frame == kRootMissing ? kRootMissing : index.function_of(slice.frame))
                .second;
        ASSERT_TRUE(added);
      }
      ASSERT_EQ(got, expected);
    }
  }
}

// ---- compiles and phases ------------------------------------------------------------------------

class SpanRowTest : public testing::Test {
 protected:
  CompileIndex compile(std::uint64_t first, std::uint64_t last) {
    Compile made;
    made.first_ns = first * kPeriod / 10;
    made.last_ns = last * kPeriod / 10;
    compiles.push_back(made);
    return static_cast<CompileIndex>(compiles.size() - 1);
  }
  void add(std::uint64_t time, CompileIndex index, Phase phase = Phase::kRuntime) {
    if (!row_) row_ = std::make_unique<SpanRow>(compiles, kPeriod);
    row_->add(time * kPeriod / 10, index, phase, emit);
  }
  using Spans = std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string>>;
  Spans drawn() {
    row_->close(emit);
    expect_nested(slices);
    Spans result;
    for (const SpanSlice& slice : slices) {
      result.emplace_back(slice.begin_ns * 10 / kPeriod, slice.end_ns * 10 / kPeriod,
                          std::to_string(slice.compile) +
                              (slice.is_phase ? std::string(" ") + phase_text(slice.phase) : ""));
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  std::vector<Compile> compiles;
  std::vector<SpanSlice> slices;
  SpanRow::Emit emit = [this](const SpanSlice& slice) { slices.push_back(slice); };

 private:
  std::unique_ptr<SpanRow> row_;
};

TEST_F(SpanRowTest, ACompileBridgesGapsAPhaseDoesNot) {
  CompileIndex c = compile(100, 200);
  add(90, kNoCompile);
  add(100, c, Phase::kDynamo);
  add(110, c, Phase::kInductor);
  add(200, c, Phase::kInductor);
  add(300, kNoCompile);
  EXPECT_EQ(drawn(), (Spans{{100, 110, "0 dynamo"},
                            {100, 210, "0"},
                            {110, 120, "0 inductor"},
                            {200, 210, "0 inductor"}}));
}

TEST_F(SpanRowTest, CompilesInsideOneAnotherAndInARowNest) {
  CompileIndex outer = compile(100, 150), inner = compile(120, 130), next = compile(160, 170);
  add(100, outer, Phase::kDynamo);
  add(110, outer, Phase::kDynamo);
  add(120, inner, Phase::kDynamo);
  add(130, inner, Phase::kDynamo);
  add(140, outer, Phase::kDynamo);
  add(150, outer, Phase::kDynamo);
  add(160, next, Phase::kDynamo);
  add(170, next, Phase::kDynamo);
  EXPECT_EQ(drawn(), (Spans{{100, 120, "0 dynamo"},
                            {100, 160, "0"},
                            {120, 140, "1"},
                            {120, 140, "1 dynamo"},
                            {140, 160, "0 dynamo"},
                            {160, 180, "2"},
                            {160, 180, "2 dynamo"}}));
}

TEST_F(SpanRowTest, ASampleWithoutTheMarkerDoesNotEndACompileThatGoesOn) {
  CompileIndex c = compile(100, 120);
  add(100, c, Phase::kDynamo);
  add(110, kNoCompile);
  add(120, c, Phase::kDynamo);
  EXPECT_EQ(drawn(), (Spans{{100, 110, "0 dynamo"}, {100, 130, "0"}, {120, 130, "0 dynamo"}}));
}

TEST_F(SpanRowTest, AnyOrderOfCompilesNests) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<Compile> table(5);
    for (Compile& made : table) made.last_ns = random() % (100 * kPeriod);  // not even true
    SpanRow row(table, kPeriod);
    slices.clear();
    std::uint64_t now = 0;
    for (int i = 0; i < 60; ++i) {
      now += round % 2 == 0 ? random() % (3 * kPeriod) : random() % 3;
      CompileIndex c = random() % 4 == 0 ? kNoCompile : static_cast<CompileIndex>(random() % 5);
      row.add(now, c, static_cast<Phase>(random() % 4), emit);
    }
    row.close(emit);
    expect_nested(slices);
    if (HasFatalFailure()) return;
  }
}

TEST(TimelineProperty, TimesNearTheEndOfTheClockDoNotWrap) {
  FakeRecording fake;
  StackId stack = fake.stack({fake.python("a.py", "f", 1), fake.python("a.py", "g", 1)});
  StackIndex index(fake.tables());
  FrameRow row(index, kPeriod);
  std::vector<FrameSlice> slices;
  auto emit = [&](const FrameSlice& slice) { slices.push_back(slice); };
  std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
  row.add(end - 5, stack, 0, false, emit);
  row.add(end, 0, 0, false, emit);
  row.close(emit);
  expect_nested(slices);
  EXPECT_EQ(slices.size(), 2u);
}

TEST(DrawingPeriod, IsNeverZeroNorAbsurd) {
  Meta meta;
  EXPECT_EQ(drawing_period_ns(meta), 1u);
  meta.frequency_hz = 100;
  EXPECT_EQ(drawing_period_ns(meta), 10'000'000u);
  meta.period_ns = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(drawing_period_ns(meta), 10'000'000'000u);
}

}  // namespace
}  // namespace dynprof
