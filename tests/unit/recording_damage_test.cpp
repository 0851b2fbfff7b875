// Recordings that are cut, flipped, spliced or forged: nothing crashes, nothing wrong is believed,
// and what is lost is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "symbolizer/base/byte_writer.h"
#include "symbolizer/recording/format.h"
#include "symbolizer/recording/payload.h"
#include "symbolizer/recording/row_codec.h"
#include "tests/unit/recording_example.h"

namespace dynprof {
namespace {

using namespace recording;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::span<const std::uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
std::string as_text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Piece {
  ChunkHeader header;
  std::string bytes;  // header and payload
};

std::vector<Piece> pieces(std::string_view file) {
  std::vector<Piece> result;
  std::size_t at = kFileHeaderBytes;
  while (at < file.size()) {
    auto header = decode_chunk_header(as_bytes(file.substr(at)));
    DYNPROF_CHECK(header.has_value());
    std::size_t size = kChunkHeaderBytes + header->stored_bytes;
    result.push_back({*header, std::string(file.substr(at, size))});
    at += size;
  }
  return result;
}

std::string chunk(ChunkHeader header, std::span<const std::uint8_t> payload) {
  header.stored_bytes = header.raw_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = checksum(payload);
  return as_text(encode_chunk_header(header)) + as_text(payload);
}

std::string join(const std::vector<Piece>& parts) {
  std::string file = as_text(encode_file_header({}));
  for (const Piece& piece : parts) file += piece.bytes;
  return file;
}

// Each sample of a damaged file is one of the original's, or says that a part of it is lost.
void expect_no_wrong_sample(const Recording& recording, const std::vector<std::string>& original) {
  std::vector<std::string> texts = texts_of(recording);
  EXPECT_EQ(texts.size(), recording.sample_count());
  for (const std::string& text : texts) {
    if (text.find("<lost>") != std::string::npos) continue;
    // A text starts with its time, always ten digits, so file order is sorted order.
    EXPECT_TRUE(std::binary_search(original.begin(), original.end(), text)) << text;
  }
}

TEST(RecordingDamage, CutAtEveryByteGivesAPrefix) {
  const std::string bytes = example_bytes();
  auto whole = read_bytes(bytes);
  ASSERT_TRUE(whole.has_value());
  const std::vector<std::string> original = texts_of(**whole);
  std::size_t most = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    auto cut = read_bytes(std::string_view(bytes).substr(0, size));
    if (!cut.has_value()) {
      EXPECT_LT(size, kFileHeaderBytes);
      continue;
    }
    EXPECT_FALSE((*cut)->complete());
    std::vector<std::string> texts = texts_of(**cut);
    ASSERT_LE(texts.size(), original.size());
    ASSERT_TRUE(std::equal(texts.begin(), texts.end(), original.begin())) << "cut at " << size;
    EXPECT_GE(texts.size(), most) << "a longer file has fewer samples";
    most = texts.size();
    EXPECT_EQ((*cut)->tables().strings.size() <= (*whole)->tables().strings.size(), true);
  }
  EXPECT_EQ(most, original.size());
}

TEST(RecordingDamage, EveryFlippedBitIsNoticed) {
  std::string bytes = example_bytes();
  auto whole = read_bytes(bytes);
  ASSERT_TRUE(whole.has_value());
  const std::vector<std::string> original = texts_of(**whole);
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    auto flipped = read_bytes(bytes);
    if (flipped.has_value()) {
      ASSERT_FALSE((*flipped)->damage().empty()) << "bit " << bit;
      expect_no_wrong_sample(**flipped, original);
    } else {
      ++refused;
    }
    bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
  }
  EXPECT_EQ(refused, kFileHeaderBytes * 8) << "only a damaged header loses the whole file";
}

bool is_list(ChunkKind kind) {
  switch (kind) {
#define DYNPROF_IS(kind, ...) case ChunkKind::kind:
    DYNPROF_LISTS(DYNPROF_IS)
#undef DYNPROF_IS
    return true;
    default:
      return false;
  }
}

TEST(RecordingDamage, EveryLostChunkIsNamed) {
  const std::string bytes = example_bytes();
  auto whole = read_bytes(bytes);
  ASSERT_TRUE(whole.has_value());
  const std::vector<std::string> original = texts_of(**whole);
  const std::vector<Piece> all = pieces(bytes);
  ASSERT_GT(all.size(), 20u);
  for (std::size_t lost = 0; lost < all.size(); ++lost) {
    std::vector<Piece> rest = all;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(lost));
    auto recording = read_bytes(join(rest));
    ASSERT_TRUE(recording.has_value());
    expect_no_wrong_sample(**recording, original);
    const ChunkKind kind = all[lost].header.kind;
    if (lost + 1 == all.size()) {
      EXPECT_FALSE((*recording)->complete());
      continue;
    }
    EXPECT_THAT((*recording)->damage(), Contains("1 chunk is missing"));
    const std::size_t expected =
        kind == ChunkKind::kSamples ? original.size() - all[lost].header.count : original.size();
    EXPECT_EQ((*recording)->sample_count(), expected);
    if (kind == ChunkKind::kSamples) {
      EXPECT_THAT((*recording)->damage(), Contains("6 samples are lost"));
    } else if (kind != ChunkKind::kMeta && kind != ChunkKind::kTrailer &&
               kind != ChunkKind::kBlobs && !is_list(kind)) {
      EXPECT_THAT((*recording)->damage(), Contains(HasSubstr("that is lost")))
          << chunk_kind_text(kind);
    }
  }
}

TEST(RecordingDamage, MetaIsTakenFromTheTrailer) {
  std::vector<Piece> parts = pieces(example_bytes());
  parts.erase(parts.begin());
  auto recording = read_bytes(join(parts));
  ASSERT_TRUE(recording.has_value());
  EXPECT_EQ((*recording)->meta(), example_meta());
  EXPECT_THAT((*recording)->damage(), Contains(HasSubstr("taken from the trailer")));
  parts.resize(parts.size() - 2);
  recording = read_bytes(join(parts));
  ASSERT_TRUE(recording.has_value());
  EXPECT_EQ((*recording)->meta().period_ns, example_meta().period_ns) << "each chunk has it";
  EXPECT_EQ((*recording)->meta().frequency_hz, 999u);
  EXPECT_EQ((*recording)->meta().start_ns, samples_of(**recording).front().time_ns);
}

TEST(RecordingDamage, GarbageBetweenChunksIsSkipped) {
  std::vector<Piece> parts = pieces(example_bytes());
  std::string garbage =
      "\xd7"
      "CHK\xd7\xd7"
      "CHK";  // looks like the start of a chunk, twice
  garbage += std::string(100'000, '\xd7');
  parts[5].bytes += garbage;
  auto recording = read_bytes(join(parts));
  ASSERT_TRUE(recording.has_value());
  EXPECT_EQ((*recording)->sample_count(), 18u);
  EXPECT_TRUE((*recording)->complete());
  EXPECT_THAT((*recording)->damage(),
              ElementsAre("100,009 bytes belong to no intact chunk and were skipped"));
}

TEST(RecordingDamage, BytesCutOutOfTheMiddle) {
  const std::string bytes = example_bytes();
  auto whole = read_bytes(bytes);
  ASSERT_TRUE(whole.has_value());
  const std::vector<std::string> original = texts_of(**whole);
  for (std::size_t from = kFileHeaderBytes; from + 100 < bytes.size(); from += 13) {
    std::string cut = bytes;
    cut.erase(from, 77);
    auto recording = read_bytes(cut);
    ASSERT_TRUE(recording.has_value());
    EXPECT_THAT((*recording)->damage(), Not(IsEmpty()));
    EXPECT_TRUE((*recording)->complete() || from + 200 > bytes.size() - 500) << from;
    expect_no_wrong_sample(**recording, original);
  }
}

TEST(RecordingDamage, RepeatedAndReorderedChunksAreLeftOut) {
  std::vector<Piece> parts = pieces(example_bytes());
  std::vector<Piece> doubled;
  for (const Piece& piece : parts) {
    doubled.push_back(piece);
    if (piece.header.kind != ChunkKind::kEnd) doubled.push_back(piece);
  }
  auto recording = read_bytes(join(doubled));
  ASSERT_TRUE(recording.has_value());
  EXPECT_EQ((*recording)->sample_count(), 18u);
  EXPECT_EQ((*recording)->tables().threads.size(), 6u);
  EXPECT_THAT((*recording)->damage(), ElementsAre(HasSubstr("out of order")));
}

TEST(RecordingDamage, UnknownKindIsSkippedAndNamed) {
  std::vector<Piece> parts = pieces(example_bytes());
  ChunkHeader header = parts.back().header;
  header.kind = static_cast<ChunkKind>(777);
  Piece unknown{header, chunk(header, as_bytes("from the future"))};
  Piece end = parts.back();
  end.header.sequence += 1;
  end.bytes = chunk(end.header, {});
  parts.back() = unknown;
  parts.push_back(end);
  auto recording = read_bytes(join(parts));
  ASSERT_TRUE(recording.has_value());
  EXPECT_TRUE((*recording)->complete());
  EXPECT_EQ((*recording)->sample_count(), 18u);
  EXPECT_THAT((*recording)->damage(),
              ElementsAre(AllOf(HasSubstr("kind 777"), HasSubstr("does not know"))));
}

TEST(RecordingDamage, BytesAfterTheEndMark) {
  std::string bytes = example_bytes();
  bytes += pieces(bytes)[2].bytes;
  auto recording = read_bytes(bytes);
  ASSERT_TRUE(recording.has_value());
  EXPECT_TRUE((*recording)->complete());
  EXPECT_THAT((*recording)->damage(), ElementsAre(HasSubstr("after the end mark")));
}

// ---- forged: every checksum is right, the content is not -----------------------------------------

class Forger {
 public:
  Forger() { add(ChunkKind::kMeta, 0, 1, "{}"); }
  void add(ChunkKind kind, std::uint64_t first, std::uint32_t count, std::string_view payload) {
    ChunkHeader header;
    header.kind = kind;
    header.first = first;
    header.count = count;
    header.sequence = sequence_++;
    file_ += chunk(header, as_bytes(payload));
  }
  void add(ChunkKind kind, std::uint64_t first, std::uint32_t count, const ByteWriter& payload) {
    add(kind, first, count, as_text(payload.view()));
  }
  // One thread and one sample of it with the given ids.
  void add_sample(ThreadId thread, StackId stack, ContextId context, std::uint64_t number = 0) {
    ByteWriter out;
    for (std::uint64_t value : {1000u, 5000u, 1u, thread}) out.varint(value);
    auto column = [&](std::initializer_list<std::uint64_t> values) {
      ByteWriter bytes;
      for (std::uint64_t value : values) bytes.varint(value);
      out.sized(bytes.view());
    };
    column({0});
    column({0});
    column({zigzag(stack)});
    column({context, 0});
    column({0, 0});
    add(ChunkKind::kSamples, number, 1, out);
  }
  void raw(std::string_view bytes) { file_ += bytes; }
  std::uint32_t next_sequence() { return sequence_++; }
  std::unique_ptr<Recording> read() const {
    auto recording = read_bytes(file_);
    EXPECT_TRUE(recording.has_value());
    // Walk everything: at() and the sanitizers look at each id.
    texts_of(**recording);
    const Tables& tables = (*recording)->tables();
    for (const Frame& frame : tables.frames) frame_text(tables, frame);
    for (const Process& p : tables.processes) tables.strings.at(p.torch);
    for (std::size_t i = 1; i < tables.stacks.size(); ++i) EXPECT_LT(tables.stacks[i].caller, i);
    return std::move(*recording);
  }

 private:
  std::string file_ = as_text(encode_file_header({}));
  std::uint32_t sequence_ = 0;
};

std::string varints(std::initializer_list<std::uint64_t> values) {
  ByteWriter out;
  for (std::uint64_t value : values) out.varint(value);
  return as_text(out.view());
}

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

TEST(RecordingForged, CountsAndLengthsThatLie) {
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
