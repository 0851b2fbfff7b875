// Graph breaks, line samples and lock samples in a recording: what is written is what is read, and
// damage costs rows only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "symbolizer/recording/row_codec.h"
#include "tests/unit/recording_example.h"

namespace dynprof {
namespace {

using recording::decode;
using recording::encode;
using testing::IsEmpty;

TEST(RecordingTorch, RoundTrip) {
  auto recording = read_bytes(example_bytes());
  ASSERT_TRUE(recording.has_value());
  EXPECT_THAT((*recording)->damage(), IsEmpty());
  const Tables& tables = (*recording)->tables();
  auto text = [&](StringId id) { return tables.strings.at(id); };
  ASSERT_EQ(tables.graph_breaks.size(), 3u);
  const GraphBreak& one = tables.graph_breaks[1];
  EXPECT_EQ(text(one.reason), "print");
  EXPECT_EQ(tables.threads.at(one.thread).tid, 4243);
  ASSERT_EQ(one.calls.size(), 2u);
  EXPECT_EQ(text(one.calls[1].file), "/home/user/model_1.py");
  EXPECT_EQ(one.calls[1].line, 9u);
  EXPECT_EQ(text(one.calls[1].function), "Model1.forward");
  ASSERT_EQ(tables.line_samples.size(), 3u);
  EXPECT_EQ(tables.line_samples[2].use, LineUse::kLowering);
  EXPECT_EQ(tables.line_samples[2].line.line, 9u);
  EXPECT_EQ(tables.line_samples[2].weight_ns, 50'000'000u);
  ASSERT_EQ(tables.module_samples.size(), 3u);
  EXPECT_EQ(tables.module_samples[1].use, LineUse::kLowering);
  EXPECT_EQ(tables.module_samples[1].weight_ns, 50'000'000u);
  EXPECT_EQ(text(tables.module_samples[1].module), "L['self'].blocks.0");
  ASSERT_EQ(tables.compile_progress.size(), 3u);
  const CompileProgress& progress = tables.compile_progress[2];
  EXPECT_EQ(progress.begun_ns, progress.time_ns - 1'000'000'000);
  EXPECT_EQ(progress.use, LineUse::kLowering);
  EXPECT_EQ(progress.line.line, 9u);
  EXPECT_EQ(progress.node, 5u);
  EXPECT_EQ(progress.nodes, 70u);
  ASSERT_EQ(tables.lock_samples.size(), 3u);
  EXPECT_EQ(tables.threads.at(tables.lock_samples[0].thread).tid, 5000);
  EXPECT_EQ(tables.lock_samples[0].holder_tid, 4242);
  ASSERT_EQ(tables.region_runs.size(), 6u);
  EXPECT_EQ(tables.region_runs[4].name, 0u);
  EXPECT_EQ(tables.region_runs[4].then, RunsThen::kNotCounted);
  const RegionRuns& runs = tables.region_runs[5];
  EXPECT_EQ(text(runs.name), text(tables.edges.back().name));
  EXPECT_EQ(runs.pid, 4242);
  EXPECT_EQ(runs.end_ns, runs.begin_ns + 50);
  EXPECT_EQ(runs.calls, 7u);
  EXPECT_EQ(runs.timed, 6u);
  EXPECT_EQ(runs.time_ns, 5000u);
  EXPECT_EQ(runs.nested_ns, 400u);
  EXPECT_EQ(runs.lookups, 3u);
  EXPECT_EQ(runs.lookup_ns, 2000u);
}

TEST(RecordingTorch, ExtremesSurvive) {
  const UserCall most{UINT32_MAX, UINT32_MAX, UINT32_MAX};
  const std::vector<GraphBreak> breaks = {
      {UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, {most, {}, most}},
      {0, 0, 0, 0, {}},
      {1, 2, 3, 4, std::vector<UserCall>(kMaxBreakCalls, most)}};
  const std::vector<LineSample> lines = {
      {UINT64_MAX, UINT64_MAX, UINT32_MAX, UINT32_MAX, LineUse::kLowering, most}, {}};
  const std::vector<ModuleSample> modules = {
      {UINT64_MAX, UINT64_MAX, UINT32_MAX, UINT32_MAX, LineUse::kLowering, UINT32_MAX}, {}};
  const std::vector<CompileProgress> progress = {{UINT64_MAX, UINT64_MAX, UINT32_MAX, UINT32_MAX,
                                                  LineUse::kLowering, most, UINT32_MAX, UINT32_MAX},
                                                 {}};
  const std::vector<LockSample> locks = {{UINT64_MAX, UINT64_MAX, UINT32_MAX, INT32_MIN}, {}};
  const RegionRuns most_runs{.begin_ns = UINT64_MAX,
                             .end_ns = UINT64_MAX,
                             .pid = INT32_MIN,
                             .name = UINT32_MAX,
                             .code = UINT32_MAX,
                             .then = RunsThen::kNotTimed,
                             .calls = UINT64_MAX,
                             .timed = UINT64_MAX,
                             .time_ns = UINT64_MAX,
                             .nested_ns = UINT64_MAX,
                             .lookups = UINT64_MAX,
                             .lookup_ns = UINT64_MAX};
  const std::vector<RegionRuns> runs = {most_runs, {}};
  auto check = [](const auto& rows) {
    ByteWriter out;
    encode(rows, out);
    auto back = rows;
    back.clear();
    const auto count = static_cast<std::uint32_t>(rows.size());
    ASSERT_TRUE(decode(out.view(), count, back));
    EXPECT_EQ(back, rows);
    // Cut anywhere, or with a row too few or too many, it is damage.
    for (std::size_t size = 0; size < out.size(); ++size) {
      back.clear();
      EXPECT_FALSE(decode(out.view().first(size), count, back)) << size;
    }
    back.clear();
    EXPECT_FALSE(decode(out.view(), count - 1, back));
    back.clear();
    EXPECT_FALSE(decode(out.view(), count + 1, back));
  };
  check(breaks);
  check(lines);
  check(modules);
  check(progress);
  check(locks);
  check(runs);
}

TEST(RecordingTorch, WhatCannotBeIsDamage) {
  for (std::uint8_t use : {0, 5, 255}) {
    ByteWriter out;
    for (int i = 0; i < 4; ++i) out.varint(0);
    out.u8(use);
    for (int i = 0; i < 3; ++i) out.varint(0);
    std::vector<LineSample> back;
    EXPECT_FALSE(decode(out.view(), 1, back)) << int{use};
  }
  ByteWriter many;
  encode(std::vector<GraphBreak>{{0, 0, 0, 0, std::vector<UserCall>(kMaxBreakCalls + 1)}}, many);
  std::vector<GraphBreak> back;
  EXPECT_FALSE(decode(many.view(), 1, back));
}

TEST(RecordingTorch, RowsComeOutByTimeAndLostOnesLeave) {
  UniqueFd file = memory_file();
  UniqueFd copy(::dup(file.get()));
  auto writer = RecordingWriter::create(std::move(file), example_meta());
  ASSERT_TRUE(writer.has_value());
  const ThreadId thread = (*writer)->thread({1, 2, 0});
  for (std::uint64_t time : {30, 10, 20}) {
    (*writer)->graph_break({time, thread, 0, 0, {}});
    (*writer)->line_sample({time, 0, thread, 0, LineUse::kTracing, {}});
    (*writer)->lock_sample({time, 0, thread, 0});
  }
  ASSERT_TRUE((*writer)->finish({}).has_value());
  auto recording = read_bytes(file_bytes(copy.get()));
  ASSERT_TRUE(recording.has_value());
  const Tables& tables = (*recording)->tables();
  ASSERT_EQ(tables.graph_breaks.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tables.graph_breaks[i].time_ns, 10 * (i + 1));
    EXPECT_EQ(tables.line_samples[i].time_ns, 10 * (i + 1));
    EXPECT_EQ(tables.lock_samples[i].time_ns, 10 * (i + 1));
  }
}

// Any byte of the example replaced: what is left refers to what is there.
TEST(RecordingTorch, DamageKeepsThemValid) {
  const std::string whole = example_bytes();
  for (std::size_t at = 32; at < whole.size(); at += 5) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x5a);
    auto recording = read_bytes(bytes);
    ASSERT_TRUE(recording.has_value());
    const Tables& tables = (*recording)->tables();
    for (const GraphBreak& one : tables.graph_breaks) {
      ASSERT_LT(one.thread, tables.threads.size());
      ASSERT_LT(one.context, tables.contexts.size());
      ASSERT_LT(one.reason, tables.strings.size());
      for (const UserCall& call : one.calls) ASSERT_LT(call.file, tables.strings.size());
    }
    for (const LineSample& one : tables.line_samples) {
      ASSERT_LT(one.thread, tables.threads.size());
      ASSERT_LT(one.line.function, tables.strings.size());
    }
    for (const LockSample& one : tables.lock_samples) ASSERT_LT(one.thread, tables.threads.size());
  }
}

}  // namespace
}  // namespace dynprof
