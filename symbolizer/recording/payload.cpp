#include "symbolizer/recording/payload.h"

#include <zstd.h>

namespace dynprof::recording {
namespace {

// Chunks are small and written once a second: level 3 costs us nothing that could be measured.
constexpr int kLevel = 3;
// Below this a frame header eats what is won.
constexpr std::size_t kSmallestCompressed = 64;

}  // namespace

PayloadEncoder::PayloadEncoder() : context_(ZSTD_createCCtx()) {}
void PayloadEncoder::Free::operator()(ZSTD_CCtx_s* context) const { ZSTD_freeCCtx(context); }

std::span<const std::uint8_t> PayloadEncoder::encode(std::span<const std::uint8_t> raw,
                                                     ChunkHeader& header) {
  std::span<const std::uint8_t> stored = raw;
  header.encoding = Encoding::kRaw;
  if (context_ && raw.size() >= kSmallestCompressed) {
    buffer_.resize(ZSTD_compressBound(raw.size()));
    std::size_t size = ZSTD_compressCCtx(context_.get(), buffer_.data(), buffer_.size(), raw.data(),
                                         raw.size(), kLevel);
    if (!ZSTD_isError(size) && size < raw.size() && raw.size() / kMaxExpansion < size) {
      stored = std::span(buffer_).first(size);
      header.encoding = Encoding::kZstd;
    }
  }
  header.raw_bytes = static_cast<std::uint32_t>(raw.size());
  header.stored_bytes = static_cast<std::uint32_t>(stored.size());
  header.payload_crc = checksum(stored);
  return stored;
}

PayloadDecoder::PayloadDecoder() : context_(ZSTD_createDCtx()) {}
void PayloadDecoder::Free::operator()(ZSTD_DCtx_s* context) const { ZSTD_freeDCtx(context); }

bool PayloadDecoder::decode(const ChunkHeader& header, std::span<const std::uint8_t> stored,
                            std::span<const std::uint8_t>& raw) {
  if (header.encoding == Encoding::kRaw) {
    raw = stored;
    return header.raw_bytes == header.stored_bytes;
  }
  if (header.encoding != Encoding::kZstd || !context_) return false;
  if (header.raw_bytes / kMaxExpansion >= header.stored_bytes) return false;
  if (buffer_.size() < header.raw_bytes) buffer_.resize(header.raw_bytes);
  std::size_t size = ZSTD_decompressDCtx(context_.get(), buffer_.data(), header.raw_bytes,
                                         stored.data(), stored.size());
  if (ZSTD_isError(size) || size != header.raw_bytes) return false;
  raw = std::span<const std::uint8_t>(buffer_).first(size);
  return true;
}

}  // namespace dynprof::recording
