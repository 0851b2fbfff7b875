// Recordings that are cut, flipped or spliced: nothing crashes, nothing wrong is believed, and what is
// lost is said.
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
using testing::IsEmpty;
using testing::Not;

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

}  // namespace
}  // namespace dynprof
