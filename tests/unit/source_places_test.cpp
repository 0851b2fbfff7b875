// Inlined functions as frames: chains in the recording, and stacks that they are shown in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "symbolizer/recording/inlined_frames.h"
#include "symbolizer/recording/renamed.h"
#include "symbolizer/recording/row_codec.h"
#include "tests/unit/fake_recording.h"
#include "tests/unit/recording_example.h"

namespace dynprof {
namespace {

using recording::show_inlined;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kPlenty = 1 << 30;

// Names of a stack, root first; "name/line" where it is inlined.
std::vector<std::string> names_of(const Tables& tables, StackId stack) {
  std::vector<std::string> names;
  while (stack != 0) {
    const StackNode& node = tables.stacks[stack];
    EXPECT_LT(node.caller, stack);
    const Frame& frame = tables.frames[node.frame];
    std::string name(tables.strings[frame.symbol]);
    if (frame.inlined) name += '/' + std::to_string(frame.source_line);
    names.insert(names.begin(), std::move(name));
    stack = node.caller;
  }
  return names;
}

class SourcePlacesShown : public testing::Test {
 protected:
  FrameId native(std::string_view name, std::uint64_t offset = 0) {
    return fake_.native(name, "/usr/bin/work", offset);
  }
  // The functions inlined in it, innermost first: on lines 1, 2, ..., the frame itself on the next
  // one.
  void inside(FrameId frame, const std::vector<std::string>& functions) {
    SourcePlaces row{frame, {}};
    std::uint32_t line = 0;
    for (const std::string& function : functions)
      row.chain.push_back({fake_.string(function), fake_.string("w.cpp"), ++line, 1});
    row.chain.push_back({0, fake_.string("w.cpp"), ++line, 1});
    tables().source_places.push_back(row);
  }
  Tables& tables() { return fake_.edit_tables(); }
  FakeRecording fake_;
};

TEST_F(SourcePlacesShown, AFrameBecomesSeveral) {
  const FrameId outer = native("outer");
  const StackId stack = fake_.stack({native("main", 4), outer, native("leaf", 8)});
  inside(outer, {"innermost", "middle"});
  const auto shown = show_inlined(tables(), kPlenty);
  EXPECT_EQ(shown.problem, "");
  EXPECT_THAT(names_of(tables(), shown.now(stack)),
              ElementsAre("main", "outer", "middle/2", "innermost/1", "leaf"));
  EXPECT_EQ(tables().frames[outer].source_line, 3u);
  EXPECT_TRUE(tables().source_places.empty()) << "shown once";
  EXPECT_TRUE(show_inlined(tables(), kPlenty).stacks.empty());
}

TEST_F(SourcePlacesShown, ALineAloneChangesNoStack) {
  const FrameId frame = native("plain");
  const StackId stack = fake_.stack({frame});
  inside(frame, {});
  const auto shown = show_inlined(tables(), kPlenty);
  EXPECT_TRUE(shown.stacks.empty());
  EXPECT_EQ(shown.now(stack), stack);
  EXPECT_EQ(tables().frames[frame].source_line, 1u);
  EXPECT_EQ(tables().strings[tables().frames[frame].source_file], "w.cpp");
}

TEST_F(SourcePlacesShown, SharedStacksStayShared) {
  const FrameId a = native("a", 1), b = native("b", 2), c = native("c", 3);
  const StackId below = fake_.stack({a}), left = fake_.stack({b}, below);
  const StackId right = fake_.stack({c}, below), twice = fake_.stack({a, a}, left);
  inside(a, {"in_a"});
  inside(c, {"in_c"});
  const auto shown = show_inlined(tables(), kPlenty);
  EXPECT_THAT(names_of(tables(), shown.now(left)), ElementsAre("a", "in_a/1", "b"));
  EXPECT_THAT(names_of(tables(), shown.now(right)), ElementsAre("a", "in_a/1", "c", "in_c/1"));
  EXPECT_THAT(names_of(tables(), shown.now(twice)),
              ElementsAre("a", "in_a/1", "b", "a", "in_a/1", "a", "in_a/1"));
  // The two nodes of `a` once, not once for each stack above.
  EXPECT_EQ(tables().stacks.size(), 1u + 2 + 1 + 2 + 4);
  EXPECT_EQ(tables().stacks[shown.now(left)].caller, shown.now(below));
}

TEST_F(SourcePlacesShown, WaitsAndLaunchesFollow) {
  const FrameId a = native("a"), stub = native("stub", 9);
  const StackId waits = fake_.stack({a}), launches = fake_.stack({a, stub});
  tables().waits.push_back(Wait{.stack = waits});
  tables().gpu_launches.push_back(GpuLaunch{.stack = launches});
  tables().gpu_launches.push_back(GpuLaunch{.stack = launches, .flags = kGpuCallStub});
  inside(a, {"in_a"});
  inside(stub, {"in_stub"});
  show_inlined(tables(), kPlenty);
  EXPECT_THAT(names_of(tables(), tables().waits[0].stack), ElementsAre("a", "in_a/1"));
  EXPECT_THAT(names_of(tables(), tables().gpu_launches[0].stack),
              ElementsAre("a", "in_a/1", "stub", "in_stub/1"));
  EXPECT_THAT(names_of(tables(), tables().gpu_launches[1].stack),
              ElementsAre("a", "in_a/1", "stub"))
      << "it stands for the kernel";
}

TEST_F(SourcePlacesShown, MemoryIsBounded) {
  const FrameId a = native("a");
  const StackId stack = fake_.stack({a});
  inside(a, {"in_a"});
  for (std::uint64_t memory : {0u, 100u}) {
    Tables copy = tables();
    const auto shown = show_inlined(copy, memory);
    EXPECT_THAT(shown.problem, HasSubstr("too much memory"));
    EXPECT_THAT(names_of(copy, shown.now(stack)), ElementsAre("a"));
    EXPECT_EQ(copy.frames[a].source_line, 2u) << "its line needs none";
  }
}

TEST_F(SourcePlacesShown, DepthIsBounded) {
  const FrameId a = native("a");
  inside(a, std::vector<std::string>(kMaxInlined, "in_a"));
  const StackId stack = fake_.stack(std::vector<FrameId>(200, a));
  const auto shown = show_inlined(tables(), kPlenty);
  EXPECT_THAT(shown.problem, HasSubstr("native frames are not shown"));
  // Whole frames as long as there is room, then the functions alone.
  const std::size_t whole = recording::kMaxShownDepth / (kMaxInlined + 1);
  EXPECT_EQ(names_of(tables(), shown.now(stack)).size(), whole * (kMaxInlined + 1) + 200 - whole);
}

TEST_F(SourcePlacesShown, AnythingButNativeFramesIsPassedOver) {
  const FrameId python = fake_.python("a.py", "f", 1, 2), kernel = fake_.kernel("do_idle");
  fake_.stack({python, kernel});
  inside(python, {"x"});
  inside(kernel, {"x"});
  inside(999, {"x"});
  EXPECT_TRUE(show_inlined(tables(), kPlenty).stacks.empty());
}

TEST(SourcePlacesCodec, RoundTrip) {
  std::vector<SourcePlaces> rows{{7, {{1, 2, 3, 4}, {0, 2, 90, 80}}},
                                 {3, {{0, 0, 0, 0}}},
                                 {4'000'000'000u, {{9, 8, INT32_MAX, 1}}}};
  rows.push_back({8, std::vector<SourcePlace>(kMaxInlined + 1, {5, 6, 7, 8})});
  ByteWriter out;
  recording::encode(rows, out);
  std::vector<SourcePlaces> back;
  ASSERT_TRUE(recording::decode(out.view(), 4, back));
  EXPECT_EQ(back, rows);
  for (std::size_t size = 0; size < out.size(); ++size) {
    back.clear();
    EXPECT_FALSE(recording::decode(out.view().first(size), 4, back)) << size;
  }
}

TEST(SourcePlacesCodec, ChainsAreBounded) {
  for (std::size_t places : {std::size_t{0}, kMaxInlined + 2, std::size_t{1} << 40}) {
    ByteWriter out;
    out.difference(1, 0);
    out.varint(places);
    for (std::size_t i = 0; i < 4 * (kMaxInlined + 2); ++i) out.varint(0);
    std::vector<SourcePlaces> back;
    EXPECT_FALSE(recording::decode(out.view(), 1, back)) << places;
  }
}

// Written, read, and shown in what every sample says.
TEST(SourcePlacesRecorded, SamplesHaveTheWholeStack) {
  UniqueFd file = memory_file();
  UniqueFd copy(::dup(file.get()));
  auto writer = RecordingWriter::create(std::move(file), example_meta());
  ASSERT_TRUE(writer);
  auto& out = **writer;
  const StringId object = out.string("/usr/bin/work"), source = out.string("w.cpp");
  auto frame = [&](const char* name, std::uint64_t offset) {
    return out.frame({.kind = FrameKind::kNative,
                      .symbol = out.string(name),
                      .object = object,
                      .offset = offset});
  };
  const FrameId outer = frame("outer", 1), leaf = frame("leaf", 2);
  const StackId below = out.stack({0, outer}), stack = out.stack({below, leaf});
  const ThreadId thread = out.thread({1, 1, 0});
  out.sample({5'000'000'000, thread, stack, 0, 0});
  out.sample({5'001'000'000, thread, below, 0, 0});
  out.source_places({outer, {{out.string("inner"), source, 11, 10}, {0, source, 21, 20}}});
  ASSERT_TRUE(out.finish(example_trailer()));
  auto recording = recording::open_fd(std::move(copy), "test.dynprof");
  ASSERT_TRUE(recording);
  EXPECT_THAT((*recording)->damage(), testing::IsEmpty());
  const Tables& tables = (*recording)->tables();
  const auto samples = samples_of(**recording);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_THAT(names_of(tables, samples[0].stack), ElementsAre("outer", "inner/11", "leaf"));
  EXPECT_THAT(names_of(tables, samples[1].stack), ElementsAre("outer", "inner/11"));
  EXPECT_EQ(tables.frames[outer].source_line, 21u);
  EXPECT_EQ(tables.frames[outer].declared_line, 20u);
}

TEST(SourcePlacesRecorded, PlacesFoundLaterHold) {
  auto fake = std::make_unique<FakeRecording>();
  const FrameId a = fake->native("a", "/usr/bin/work", 1),
                b = fake->native("b", "/usr/bin/work", 2);
  const ThreadId thread = fake->thread(1, 1);
  fake->sample(thread, fake->stack({a, b}));
  for (FrameId frame : {a, b})
    fake->edit_tables().source_places.push_back(
        {frame, {{fake->string("recorded"), 0, 1, 1}, {0, 0, 2, 1}}});
  FramePlaces found;
  found.emplace_back(a, std::vector<NamedPlace>{
                            {"one", "a.cpp", 5, 4}, {"two", "a.cpp", 6, 3}, {"", "a.cpp", 7, 2}});
  found.emplace_back(b, std::vector<NamedPlace>(kMaxInlined + 2));
  auto renamed = with_names(std::move(fake), {}, std::move(found));
  std::vector<Sample> samples = samples_of(*renamed);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_THAT(names_of(renamed->tables(), samples[0].stack),
              ElementsAre("a", "two/6", "one/5", "b", "recorded/1"));
  EXPECT_EQ(renamed->tables().frames[a].source_line, 7u);
}

}  // namespace
}  // namespace dynprof
