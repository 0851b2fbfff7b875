// Waits in a recording: what is written is what is read, and damage costs rows only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "symbolizer/recording/row_codec.h"
#include "tests/unit/recording_example.h"

namespace dynprof {
namespace {

using recording::decode;
using recording::encode;
using testing::IsEmpty;

Wait random_wait(std::mt19937& random) {
  Wait wait;
  wait.begin_ns = std::uint64_t{random()} << 16 | random();
  wait.length_ns = random();
  wait.span_ns = wait.length_ns + random() % 1000;
  wait.runnable_ns = random() % (wait.length_ns + 1);
  wait.cpu_ns = std::uint64_t{random()} << 20;
  wait.thread = static_cast<std::uint32_t>(random());
  wait.stack = static_cast<std::uint32_t>(random());
  wait.context = static_cast<std::uint32_t>(random());
  wait.kind = static_cast<WaitKind>(random() % kWaitKinds);
  wait.count = static_cast<std::uint32_t>(random());
  wait.flags = static_cast<std::uint8_t>(random() % 16);
  return wait;
}

TEST(RecordingWaits, AnyRowComesBack) {
  std::mt19937 random(7);
  std::vector<Wait> waits;
  for (int i = 0; i < 2000; ++i) waits.push_back(random_wait(random));
  ByteWriter out;
  encode(std::span<const Wait>(waits), out);
  std::vector<Wait> back;
  ASSERT_TRUE(decode(out.view(), static_cast<std::uint32_t>(waits.size()), back));
  EXPECT_EQ(back, waits);
}

TEST(RecordingWaits, ImpossibleWaitsAreDamage) {
  const Wait good{.begin_ns = 5, .span_ns = 9, .length_ns = 7, .runnable_ns = 2};
  auto refused = [](const Wait& wait) {
    ByteWriter out;
    encode(std::span<const Wait>(&wait, 1), out);
    std::vector<Wait> back;
    return !decode(out.view(), 1, back);
  };
  EXPECT_FALSE(refused(good));
  Wait bad = good;
  bad.kind = static_cast<WaitKind>(kWaitKinds);
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.flags = 16;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.runnable_ns = 8;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.begin_ns = UINT64_MAX - 8;  // it would end after the end of time
  EXPECT_TRUE(refused(bad));
}

TEST(RecordingWaits, AnyBytesAreReadOrRefused) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::uint8_t> bytes(random() % 100);
    for (auto& byte : bytes)
      byte = static_cast<std::uint8_t>(random() % 4 ? random() % 7 : random());
    std::vector<Wait> waits;
    EXPECT_TRUE(!decode(bytes, 3, waits) || waits.size() == 3u);
    for (std::size_t i = 0; i + 1 < waits.size(); ++i)
      EXPECT_LE(waits[i].runnable_ns, waits[i].length_ns);
  }
}

// Waits between samples, in each chunk one more.
std::string with_waits() {
  UniqueFd file = memory_file();
  UniqueFd copy(::dup(file.get()));
  auto writer = RecordingWriter::create(std::move(file), example_meta());
  DYNPROF_CHECK(writer.has_value());
  const StringId comm = (*writer)->string("python3");
  const ThreadId thread = (*writer)->thread({1, 2, comm});
  for (std::uint64_t i = 0; i < 4; ++i) {
    const CodeId code = (*writer)->code({.filename = comm, .first_line = static_cast<int>(i)});
    const FrameId frame = (*writer)->frame({.code = code});
    Wait wait{.begin_ns = 1000 - 10 * i, .span_ns = 5, .length_ns = 5};
    wait.thread = thread;
    wait.stack = (*writer)->stack({0, frame});
    wait.kind = WaitKind::kFutex;
    (*writer)->wait(wait);
    DYNPROF_CHECK((*writer)->flush().has_value());
  }
  DYNPROF_CHECK((*writer)->finish({}).has_value());
  std::string bytes(static_cast<std::size_t>(::lseek(copy.get(), 0, SEEK_END)), '\0');
  DYNPROF_CHECK(::pread(copy.get(), bytes.data(), bytes.size(), 0) ==
                static_cast<ssize_t>(bytes.size()));
  return bytes;
}

TEST(RecordingWaits, ComeInOrderOfTheirBegin) {
  auto recording = read_bytes(with_waits());
  ASSERT_TRUE(recording.has_value());
  EXPECT_THAT((*recording)->damage(), IsEmpty());
  const std::vector<Wait>& waits = (*recording)->tables().waits;
  ASSERT_EQ(waits.size(), 4u);
  for (std::size_t i = 0; i < waits.size(); ++i) EXPECT_EQ(waits[i].begin_ns, 970 + 10 * i);
  EXPECT_EQ(waits[3].kind, WaitKind::kFutex);
}

// Cut or flipped anywhere: what is left refers to what is there.
TEST(RecordingWaits, DamageKeepsThemValid) {
  const std::string whole = with_waits();
  for (std::size_t at = 32; at < whole.size(); at += 3) {
    for (bool cut : {true, false}) {
      std::string bytes = cut ? whole.substr(0, at) : whole;
      if (!cut) bytes[at] = static_cast<char>(bytes[at] ^ 0x5a);
      auto recording = read_bytes(bytes);
      if (!recording.has_value()) continue;
      const Tables& tables = (*recording)->tables();
      EXPECT_LE(tables.waits.size(), 4u);
      for (const Wait& wait : tables.waits) {
        ASSERT_LT(wait.stack, tables.stacks.size());
        ASSERT_LT(wait.thread, tables.threads.size());
        ASSERT_LT(wait.context, tables.contexts.size());
        EXPECT_EQ(wait.length_ns, 5u);
      }
    }
  }
}

}  // namespace
}  // namespace dynprof
