// The bytes of a recording file: its header, the header of a chunk, and the bounds both sides keep.
// docs/recording-format.md is the specification; this is its constants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "symbolizer/recording/chunk_list.h"

namespace dynprof::recording {

// Starts with a byte that is no text and holds a line ending that a text-mode copy would change.
inline constexpr std::array<std::uint8_t, 8> kFileMagic = {0x89, 'D', 'Y',  'N',
                                                           'P',  'R', '\r', '\n'};
inline constexpr std::array<std::uint8_t, 4> kChunkMagic = {0xd7, 'C', 'H', 'K'};

inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::size_t kFileHeaderBytes = 32;
inline constexpr std::size_t kChunkHeaderBytes = 40;

// See chunk_list.h. A reader leaves out kinds it does not know, and names them.
enum class ChunkKind : std::uint16_t {
#define DYNPROF_KIND(kind, number, ...) kind = number,
  DYNPROF_OTHER_CHUNKS(DYNPROF_KIND) DYNPROF_TABLES(DYNPROF_KIND) DYNPROF_LISTS(DYNPROF_KIND)
#undef DYNPROF_KIND
};
// "strings", "samples", ...; "" for a kind we do not know.
std::string_view chunk_kind_text(ChunkKind kind);

enum class Encoding : std::uint8_t { kRaw = 0, kZstd = 1 };

// A chunk's payload, stored and expanded. Expansion is bounded as well, so that a small hostile
// file cannot ask for much work; a writer stores raw what would compress better than that.
inline constexpr std::uint32_t kMaxChunkBytes = 16u << 20;
inline constexpr std::uint32_t kMaxExpansion = 128;
inline constexpr std::uint32_t kMaxSamplesPerChunk = 65536;
// One entry of a table. A longer string is cut, a longer blob not kept.
inline constexpr std::size_t kMaxStringBytes = 1u << 20;
inline constexpr std::size_t kMaxBlobBytes = 8u << 20;
// Ids and sample numbers beyond these are damage.
inline constexpr std::uint64_t kMaxId = 0xfffffff0u;
inline constexpr std::uint64_t kMaxSamples = std::uint64_t{1} << 48;
inline constexpr std::uint32_t kMaxMarkers = 256;
inline constexpr std::uint32_t kMaxOpenPhases = 64;
// Frames of one stack: 1,024 Python frames and the native ones between them fit well.
inline constexpr std::uint32_t kMaxStackDepth = 16384;

struct FileHeader {
  std::uint32_t version = kVersion;
  std::uint32_t flags = 0;  // a set bit is something a reader must understand: none defined yet
  std::uint32_t header_bytes = kFileHeaderBytes;  // where the first chunk begins
};
enum class HeaderState : std::uint8_t { kGood, kNotARecording, kDamaged, kOlder, kNewer };
HeaderState decode_file_header(std::span<const std::uint8_t> bytes, FileHeader& header);
std::array<std::uint8_t, kFileHeaderBytes> encode_file_header(const FileHeader& header);

struct ChunkHeader {
  ChunkKind kind{};
  Encoding encoding = Encoding::kRaw;
  std::uint32_t sequence = 0;
  std::uint32_t stored_bytes = 0;
  std::uint32_t raw_bytes = 0;
  std::uint32_t count = 0;  // entries or samples in it
  std::uint64_t first = 0;  // id of the first entry, number of the first sample
  std::uint32_t payload_crc = 0;
};
// Empty for anything that is not an intact header within the bounds above.
std::optional<ChunkHeader> decode_chunk_header(std::span<const std::uint8_t> bytes);
std::array<std::uint8_t, kChunkHeaderBytes> encode_chunk_header(const ChunkHeader& header);

// zlib's CRC-32.
std::uint32_t checksum(std::span<const std::uint8_t> bytes);
// Always true in a fuzzing build, which would otherwise never get past a checksum.
bool checksum_matches(std::span<const std::uint8_t> bytes, std::uint32_t expected);

}  // namespace dynprof::recording
