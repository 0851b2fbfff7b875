// What a process that reads DWARF is asked, and what it answers: bytes, since neither side trusts
// what the other was fed with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "symbolizer/base/byte_writer.h"
#include "user/symbols/dwarf_places.h"

namespace dynprof {

inline constexpr std::size_t kMaxPlaceAddresses = 1 << 18;  // of one file
inline constexpr std::size_t kMaxPlaceFileBytes = 4096;     // of a source file's name

// Ascending addresses.
std::vector<std::uint8_t> encode_wanted(std::span<const std::uint64_t> addresses);
std::optional<std::vector<std::uint64_t>> decode_wanted(std::span<const std::uint8_t> bytes);

void encode_places(std::size_t index, const PlaceChain& chain, ByteWriter& out);
void encode_end(ByteWriter& out);

struct PlaceAnswers {
  std::vector<std::pair<std::size_t, PlaceChain>> found;
  bool ended = false;  // the end was there; else what came before it
};
// Up to what is not well formed, or not an answer to `count` addresses.
PlaceAnswers decode_places(std::span<const std::uint8_t> bytes, std::size_t count);

}  // namespace dynprof
