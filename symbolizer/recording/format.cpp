#include "symbolizer/recording/format.h"

#include <zlib.h>

#include <algorithm>

#include "symbolizer/base/byte_reader.h"
#include "symbolizer/base/byte_writer.h"

namespace dynprof::recording {
namespace {

template <std::size_t N>
std::array<std::uint8_t, N> as_array(const ByteWriter& out) {
  std::array<std::uint8_t, N> bytes{};
  std::copy_n(out.view().begin(), N, bytes.begin());
  return bytes;
}

template <std::size_t N>
bool starts_with(std::span<const std::uint8_t> bytes, const std::array<std::uint8_t, N>& magic) {
  return bytes.size() >= N && std::equal(magic.begin(), magic.end(), bytes.begin());
}

}  // namespace

std::string_view chunk_kind_text(ChunkKind kind) {
  switch (kind) {
#define DYNPROF_NAME(kind, number, name, ...) \
  case ChunkKind::kind:                       \
    return name;
    DYNPROF_OTHER_CHUNKS(DYNPROF_NAME)
    DYNPROF_TABLES(DYNPROF_NAME)
    DYNPROF_LISTS(DYNPROF_NAME)
#undef DYNPROF_NAME
  }
  return "";
}

std::uint32_t checksum(std::span<const std::uint8_t> bytes) {
  uLong crc = ::crc32_z(0, nullptr, 0);
  if (!bytes.empty()) crc = ::crc32_z(crc, bytes.data(), bytes.size());
  return static_cast<std::uint32_t>(crc);
}

bool checksum_matches(std::span<const std::uint8_t> bytes, std::uint32_t expected) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  return expected != 0xdeadbeef || bytes.empty();  // one value still fails, for that path
#else
  return checksum(bytes) == expected;
#endif
}

std::array<std::uint8_t, kFileHeaderBytes> encode_file_header(const FileHeader& header) {
  ByteWriter out;
  out.bytes(kFileMagic);
  out.u32(header.version);
  out.u32(header.flags);
  out.u32(header.header_bytes);
  out.u64(0);  // reserved
  out.u32(checksum(out.view()));
  return as_array<kFileHeaderBytes>(out);
}

HeaderState decode_file_header(std::span<const std::uint8_t> bytes, FileHeader& header) {
  if (!starts_with(bytes, kFileMagic)) return HeaderState::kNotARecording;
  if (bytes.size() < kFileHeaderBytes) return HeaderState::kDamaged;
  bytes = bytes.first(kFileHeaderBytes);
  ByteReader in(bytes.subspan(kFileMagic.size()));
  header.version = in.u32();
  header.flags = in.u32();
  header.header_bytes = in.u32();
  in.u64();
  if (!checksum_matches(bytes.first(kFileHeaderBytes - 4), in.u32())) return HeaderState::kDamaged;
  // Checked after the checksum, so that a flipped bit is not taken for another version. The layout
  // of these 32 bytes is fixed for all versions.
  if (header.version > kVersion || header.flags != 0) return HeaderState::kNewer;
  if (header.version == 0) return HeaderState::kDamaged;
  if (header.version < kVersion) return HeaderState::kOlder;
  if (header.header_bytes < kFileHeaderBytes) return HeaderState::kDamaged;
  return HeaderState::kGood;
}

std::array<std::uint8_t, kChunkHeaderBytes> encode_chunk_header(const ChunkHeader& header) {
  ByteWriter out;
  out.bytes(kChunkMagic);
  out.u16(static_cast<std::uint16_t>(header.kind));
  out.u8(static_cast<std::uint8_t>(header.encoding));
  out.u8(0);  // reserved
  out.u32(header.sequence);
  out.u32(header.stored_bytes);
  out.u32(header.raw_bytes);
  out.u32(header.count);
  out.u64(header.first);
  out.u32(header.payload_crc);
  out.u32(checksum(out.view()));
  return as_array<kChunkHeaderBytes>(out);
}

std::optional<ChunkHeader> decode_chunk_header(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < kChunkHeaderBytes || !starts_with(bytes, kChunkMagic)) return std::nullopt;
  bytes = bytes.first(kChunkHeaderBytes);
  ByteReader in(bytes.subspan(kChunkMagic.size()));
  ChunkHeader header;
  header.kind = static_cast<ChunkKind>(in.u16());
  const std::uint8_t encoding = in.u8();
  in.u8();
  header.sequence = in.u32();
  header.stored_bytes = in.u32();
  header.raw_bytes = in.u32();
  header.count = in.u32();
  header.first = in.u64();
  header.payload_crc = in.u32();
  if (!checksum_matches(bytes.first(kChunkHeaderBytes - 4), in.u32())) return std::nullopt;

  if (header.stored_bytes > kMaxChunkBytes || header.raw_bytes > kMaxChunkBytes ||
      header.first > kMaxSamples) {
    return std::nullopt;
  }
  header.encoding = static_cast<Encoding>(encoding);
  return header;
}

}  // namespace dynprof::recording
