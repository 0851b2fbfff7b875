// A chunk's payload between its raw form and the one stored: zstd where that is shorter.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "symbolizer/recording/format.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace dynprof::recording {

class PayloadEncoder {
 public:
  PayloadEncoder();

  // Fills encoding, stored_bytes, raw_bytes and payload_crc; the result is valid until the next
  // call or until `raw` goes away.
  std::span<const std::uint8_t> encode(std::span<const std::uint8_t> raw, ChunkHeader& header);

 private:
  struct Free {
    void operator()(ZSTD_CCtx_s* context) const;
  };
  std::unique_ptr<ZSTD_CCtx_s, Free> context_;
  std::vector<std::uint8_t> buffer_;
};

class PayloadDecoder {
 public:
  PayloadDecoder();

  // `stored` has been checked against its checksum. False if it does not expand to exactly
  // raw_bytes or expands more than the format allows.
  bool decode(const ChunkHeader& header, std::span<const std::uint8_t> stored,
              std::span<const std::uint8_t>& raw);

 private:
  struct Free {
    void operator()(ZSTD_DCtx_s* context) const;
  };
  std::unique_ptr<ZSTD_DCtx_s, Free> context_;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace dynprof::recording
