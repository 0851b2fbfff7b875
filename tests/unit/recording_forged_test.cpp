// Recordings whose checksums are right and whose content is not: every id is valid when it is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "symbolizer/recording/payload.h"
#include "symbolizer/recording/row_codec.h"
#include "tests/unit/recording_forger.h"

namespace dynprof {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(RecordingForged, IdsThatNothingDefines) {
  Forger forger;
  forger.add_sample(4'000'000'000u, 4'000'000'000u, 4'000'000'000u);
  auto recording = forger.read();
  EXPECT_EQ(recording->sample_count(), 1u);
  EXPECT_THAT(texts_of(*recording).at(0), HasSubstr("<lost>"));
  EXPECT_THAT(recording->damage(), Contains(HasSubstr("1 sample has frames")));
  EXPECT_FALSE(
      recording->tables().contexts.at(samples_of(*recording).at(0).context).markers.empty())
      << "a lost context must not read as 'no compile was open'";
}

TEST(RecordingForged, TableRowsThatUseUndefinedIds) {
  Forger forger;
  forger.add(ChunkKind::kCodes, 1, 1, varints({0, 0x30b, zigzag(900), zigzag(7), 0, 2, zigzag(5)}));
  forger.add(ChunkKind::kFrames, 1, 2, varints({0, 900, 0, 1, 800, 700, 5}));
  forger.add(ChunkKind::kStacks, 1, 2, varints({2, 0, 1, 1, 900}));
  forger.add(ChunkKind::kContexts, 1, 1, varints({1, 1, 1, 1, 1, 1, 0, 0, 900}));
  forger.add(ChunkKind::kProcesses, 0, 1, varints({2, 0, 9, 9, 9, 9, 9, 0, 0}));
  forger.add(ChunkKind::kNativeNames, 0, 2, varints({zigzag(2), zigzag(600), zigzag(9000), 0}));
  forger.add(ChunkKind::kThreads, 0, 1, varints({2, 2, 9}));
  forger.add_sample(0, 2, 1);
  auto recording = forger.read();
  EXPECT_EQ(recording->tables().stacks.size(), 3u);
  EXPECT_THAT(recording->damage(), Contains(HasSubstr("<lost>")));
  EXPECT_THAT(texts_of(*recording).at(0), HasSubstr("<lost>"));
}

TEST(RecordingForged, SourcePlacesOfWhatIsNotThere) {
  Forger forger;
  forger.add(ChunkKind::kStrings, 1, 1, std::string_view("\x01x", 2));
  forger.add(ChunkKind::kFrames, 1, 3, varints({1, 1, 1, 5, 1, 1, 1, 6, 0, 0, 0}));
  forger.add(ChunkKind::kStacks, 1, 1, varints({2, 0, 0, 2}));
  // Of no frame; of a Python frame; with a file that is not there; one that is good; that one
  // again.
  auto one = [](std::uint64_t frame, std::uint64_t file) {
    return SourcePlaces{static_cast<FrameId>(frame),
                        {{1, static_cast<StringId>(file), 7, 1}, {0, 1, 9, 1}}};
  };
  const std::vector<SourcePlaces> rows{one(900, 1), one(3, 1), one(1, 800), one(2, 1), one(2, 0)};
  ByteWriter out;
  encode(rows, out);
  forger.add(ChunkKind::kSourcePlaces, 0, 5, out);
  forger.add_sample(0, 1, 0);
  auto recording = forger.read();
  const Tables& tables = recording->tables();
  ASSERT_EQ(tables.frames.size(), 5u) << "one function is inlined";
  EXPECT_EQ(tables.frames[1].source_line, 0u);
  EXPECT_EQ(tables.frames[2].source_line, 9u);
  EXPECT_EQ(tables.frames[3].source_line, 0u);
  EXPECT_TRUE(tables.frames[4].inlined);
  EXPECT_EQ(tables.frames[4].source_line, 7u);
  ASSERT_EQ(tables.stacks.size(), 3u);
  EXPECT_EQ(samples_of(*recording).at(0).stack, 2u) << "the innermost";
}

TEST(RecordingForged, ACallerIsOlderThanItsCallee) {
  // Distance 2 from id 1 would be id -1; distance 1 is the root.
  for (std::uint64_t distance : {2u, 100u, 0xffffffffu}) {
    Forger forger;
    forger.add(ChunkKind::kStacks, 1, 1, varints({2, distance, 0, 0}));
    auto recording = forger.read();
    EXPECT_EQ(recording->tables().stacks.size(), 1u);
    EXPECT_THAT(recording->damage(), ElementsAre(HasSubstr("malformed")));
  }
}

TEST(RecordingForged, StacksAreCutAtADepth) {
  constexpr std::uint32_t kNodes = 100'000;
  ByteWriter runs;
  runs.varint(0);
  runs.varint(kNodes - 1);
  ByteWriter out;
  out.sized(runs.view());
  for (std::uint32_t i = 0; i < kNodes; ++i) out.varint(0);
  Forger forger;
  forger.add(ChunkKind::kStacks, 1, kNodes, out);
  auto recording = forger.read();
  const std::vector<StackNode>& stacks = recording->tables().stacks;
  ASSERT_EQ(stacks.size(), kNodes + 1);
  std::uint32_t depth = 0;
  for (StackId id = kNodes; id != 0; id = stacks[id].caller) ++depth;
  EXPECT_LE(depth, kMaxStackDepth);
  EXPECT_THAT(recording->damage(), Contains(HasSubstr("16,384 frames")));
}

TEST(RecordingForged, FalseCountsAndLengths) {
#define DYNPROF_KIND(kind, ...) ChunkKind::kind,
  for (ChunkKind kind :
       {DYNPROF_TABLES(DYNPROF_KIND) DYNPROF_LISTS(DYNPROF_KIND) ChunkKind::kSamples}) {
#undef DYNPROF_KIND
    for (std::uint32_t count : {0u, 1u, 3u, 60'000u, 0xffffffffu}) {
      for (std::string_view payload :
           {std::string_view(""), std::string_view("\x00", 1),
            std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            std::string_view("\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01"),
            std::string_view("\x05\xff\xff\xff\xff\x7f"
                             "abc")}) {
        Forger forger;
        forger.add(kind, 1, count, payload);
        forger.add(kind, UINT32_MAX, count, payload);
        auto recording = forger.read();
        EXPECT_LE(recording->sample_count(), 2u);
      }
    }
  }
}

TEST(RecordingForged, AGapAsLargeAsItGetsTakesBoundedMemory) {
  for (ChunkKind kind : {ChunkKind::kStrings, ChunkKind::kCodes, ChunkKind::kFrames,
                         ChunkKind::kStacks, ChunkKind::kContexts, ChunkKind::kThreads}) {
    Forger forger;
    forger.add(kind, 0xff000000u, 1, std::string(64, '\0'));
    auto recording = forger.read();
    EXPECT_LE(recording->tables().threads.size(), 1u);
    EXPECT_THAT(recording->damage(), ElementsAre(HasSubstr("memory")));
  }
}

TEST(RecordingForged, ExpansionIsBounded) {
  const std::string zeros(8 << 20, '\0');
  ChunkHeader header;
  PayloadEncoder encoder;
  encoder.encode(as_bytes(zeros), header);
  EXPECT_EQ(header.encoding, Encoding::kRaw) << "a writer keeps the bound itself";

  // 17 bytes that expand to 8 MiB: one zstd frame of run-length blocks.
  ByteWriter bomb;
  bomb.u32(0xfd2fb528);
  bomb.u8(0x80);  // 4 bytes of content size, windowed
  bomb.u8(0x68);  // window: 8 MiB
  bomb.u32(8 << 20);
  for (int block = 0; block < 64; ++block) {
    std::uint32_t word = (131072u << 3) | 2u | (block == 63 ? 1u : 0u);
    for (int i = 0; i < 3; ++i) bomb.u8(static_cast<std::uint8_t>(word >> (8 * i)));
    bomb.u8(0);
  }
  header = {};
  header.encoding = Encoding::kZstd;
  header.stored_bytes = static_cast<std::uint32_t>(bomb.size());
  header.raw_bytes = 8 << 20;
  PayloadDecoder decoder;
  std::span<const std::uint8_t> raw;
  EXPECT_FALSE(decoder.decode(header, bomb.view(), raw));
  header.raw_bytes = header.stored_bytes * 100;  // lies about the size
  EXPECT_FALSE(decoder.decode(header, bomb.view(), raw));
}

TEST(RecordingForged, TimesThatGoBackAreRaised) {
  Forger forger;
  forger.add(ChunkKind::kThreads, 0, 1, varints({2, 2, 0}));
  ByteWriter out;
  for (std::uint64_t value : {1000u, 5000u, 1u, 0u}) out.varint(value);
  out.sized(as_bytes(varints({0, 0, 0})));
  out.sized(as_bytes(varints({0, zigzag(-3000), 0})));
  out.sized(as_bytes(varints({0, 0, 0})));
  out.sized(as_bytes(varints({0, 2})));
  out.sized(as_bytes(varints({0, 2})));
  forger.add(ChunkKind::kSamples, 0, 3, out);
  auto recording = forger.read();
  std::vector<std::uint64_t> times;
  for (const Sample& sample : samples_of(*recording)) times.push_back(sample.time_ns);
  EXPECT_THAT(times, ElementsAre(5000u, 5000u, 5000u));
  EXPECT_THAT(recording->damage(), Contains(HasSubstr("times were raised")));
}

TEST(RecordingForged, JsonOfTheWrongShape) {
  for (std::string_view text :
       {"", "[]", "7", "null", "{", "{\"period_ns\": -1, \"target_pid\": 4294967296}",
        "{\"host\": 5, \"period_ns\": \"x\", \"counters\": []}", "{\"start_ns\": 1e300}"}) {
    Forger forger;
    forger.add(ChunkKind::kMeta, 0, 1, text);
    forger.add(ChunkKind::kTrailer, 0, 1, text);
    auto recording = forger.read();
    EXPECT_EQ(recording->meta(), Meta{}) << text;
    EXPECT_TRUE(recording->trailer().counters.empty());
  }
  Forger deep;
  deep.add(ChunkKind::kMeta, 0, 1, std::string(1 << 20, '['));
  EXPECT_EQ(deep.read()->meta(), Meta{});
}

}  // namespace
}  // namespace dynprof
