// Births and deaths of processes in a recording: what is written is read, what is damaged is dropped.
#include <gtest/gtest.h>

#include "symbolizer/recording/row_codec.h"
#include "tests/unit/recording_example.h"

namespace dynprof {
namespace {

TEST(RecordingLife, RoundTrip) {
  auto recording = read_bytes(example_bytes());
  ASSERT_TRUE(recording.has_value());
  const Tables& tables = (*recording)->tables();
  ASSERT_EQ(tables.lives.size(), 9u);
  const ProcessLife& fork = tables.lives[3];
  EXPECT_EQ(fork.kind, LifeKind::kFork);
  EXPECT_EQ(fork.pid, 4301);
  EXPECT_EQ(fork.parent_pid, 4242);
  EXPECT_EQ(fork.parent_tid, 5001);
  const ProcessLife& exec = tables.lives[4];
  EXPECT_EQ(exec.kind, LifeKind::kExec);
  EXPECT_EQ(tables.strings[exec.comm], "g++");
  EXPECT_EQ(tables.strings[exec.exe], "/usr/bin/g++");
  EXPECT_EQ(tables.strings[exec.command_line], std::string_view("g++\0-c\0main.cpp", 15));
  EXPECT_EQ(exec.command_bytes, 5000u);
  EXPECT_EQ(exec.cpu_ns, 1'000'000u);
  EXPECT_EQ(exec.time_ns, fork.time_ns + 10);
  const ProcessLife& exit = tables.lives[8];
  EXPECT_EQ(exit.kind, LifeKind::kExit);
  EXPECT_EQ(exit.cpu_ns, 77'000'000u);
  EXPECT_EQ(exit.exit_code, 9);
}

TEST(RecordingLife, ExtremesSurvive) {
  std::vector<ProcessLife> lives = {
      {.time_ns = UINT64_MAX, .pid = INT32_MAX, .kind = LifeKind::kLeft, .parent_pid = INT32_MIN},
      {.time_ns = 0,
       .pid = INT32_MIN,
       .kind = LifeKind::kReaped,
       .parent_pid = INT32_MAX,
       .parent_tid = -1,
       .comm = UINT32_MAX,
       .exe = 0,
       .command_line = UINT32_MAX,
       .command_bytes = UINT32_MAX,
       .cpu_ns = UINT64_MAX,
       .exit_code = INT32_MIN}};
  ByteWriter out;
  recording::encode(lives, out);
  const std::string bytes(out.view().begin(), out.view().end());
  std::vector<ProcessLife> back;
  auto span = std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  ASSERT_TRUE(recording::decode(span, 2, back));
  EXPECT_EQ(back, lives);
  // Cut anywhere, or with a row too few or too many, it is damage.
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    back.clear();
    EXPECT_FALSE(recording::decode(span.first(size), 2, back)) << size;
  }
  back.clear();
  EXPECT_FALSE(recording::decode(span, 1, back));
  EXPECT_FALSE(recording::decode(span, 3, back));
}

TEST(RecordingLife, KindsAndPidsThatCannotBe) {
  for (std::uint8_t kind : {0, 7, 255}) {
    ByteWriter out;
    recording::encode(std::vector<ProcessLife>{{.kind = LifeKind::kFork}}, out);
    std::string bytes(out.view().begin(), out.view().end());
    bytes[0] = static_cast<char>(kind);
    std::vector<ProcessLife> back;
    EXPECT_FALSE(recording::decode(
        std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 1, back));
  }
  // A difference of pids that leaves the range of pids: kind, time, then the pid.
  ByteWriter out;
  out.u8(1);
  out.varint(0);
  out.signed_varint(INT64_MAX);
  for (int i = 0; i < 8; ++i) out.varint(0);
  const std::string bytes(out.view().begin(), out.view().end());
  std::vector<ProcessLife> back;
  EXPECT_FALSE(recording::decode(
      std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 1, back));
}

TEST(RecordingLife, MemoryPeaks) {
  const std::vector<MemoryPeak> peaks = {
      {.time_ns = UINT64_MAX, .pid = INT32_MAX, .of = PeakOf::kBeforeExec, .bytes = UINT64_MAX},
      {.time_ns = 0, .pid = INT32_MIN, .of = PeakOf::kProcess, .bytes = 0}};
  ByteWriter out;
  recording::encode(peaks, out);
  std::string bytes(out.view().begin(), out.view().end());
  const auto span = std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  std::vector<MemoryPeak> back;
  ASSERT_TRUE(recording::decode(span, 2, back));
  EXPECT_EQ(back, peaks);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    back.clear();
    EXPECT_FALSE(recording::decode(span.first(size), 2, back)) << size;
  }
  for (const char of : {'\0', '\4'}) {
    bytes[0] = of;
    back.clear();
    EXPECT_FALSE(recording::decode(span, 2, back)) << int{of};
  }
}

TEST(RecordingLife, RowsComeOutByTimeAndLostTextIsNamed) {
  UniqueFd file = memory_file();
  UniqueFd copy(::dup(file.get()));
  auto writer = RecordingWriter::create(std::move(file), example_meta());
  ASSERT_TRUE(writer.has_value());
  (*writer)->process_life({.time_ns = 30, .pid = 7, .kind = LifeKind::kExit});
  (*writer)->process_life({.time_ns = 10, .pid = 7, .kind = LifeKind::kFork});
  ASSERT_TRUE((*writer)->finish(example_trailer()).has_value());
  auto recording = read_bytes(file_bytes(copy.get()));
  ASSERT_TRUE(recording.has_value());
  ASSERT_EQ((*recording)->tables().lives.size(), 2u);
  EXPECT_EQ((*recording)->tables().lives[0].kind, LifeKind::kFork);
}

}  // namespace
}  // namespace dynprof
