#include "user/symbols/place_wire.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "symbolizer/base/byte_reader.h"
#include "symbolizer/recording/model.h"
#include "symbolizer/symbols/demangle.h"

namespace dynprof {
namespace {

constexpr std::uint8_t kPlaces = 1;
constexpr std::uint8_t kEnd = 2;

void text(std::string_view value, ByteWriter& out) {
  out.varint(value.size());
  out.bytes(value);
}

std::string text(ByteReader& in, std::size_t most) {
  const std::span<const std::uint8_t> bytes = in.sized();
  if (bytes.size() > most) in.fail();
  return {reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), most)};
}

}  // namespace

std::vector<std::uint8_t> encode_wanted(std::span<const std::uint64_t> addresses) {
  ByteWriter out;
  out.varint(addresses.size());
  std::uint64_t last = 0;
  for (std::uint64_t address : addresses) {
    out.varint(address - last);
    last = address;
  }
  return {out.view().begin(), out.view().end()};
}

std::optional<std::vector<std::uint64_t>> decode_wanted(std::span<const std::uint8_t> bytes) {
  ByteReader in(bytes);
  const std::uint64_t count = in.varint_up_to(kMaxPlaceAddresses);
  std::vector<std::uint64_t> addresses;
  for (std::uint64_t i = 0; i < count && in.ok(); ++i) {
    const std::uint64_t last = addresses.empty() ? 0 : addresses.back();
    addresses.push_back(last + in.varint());
    if (addresses.back() < last) in.fail();
  }
  if (!in.done()) return std::nullopt;
  return addresses;
}

void encode_places(std::size_t index, const PlaceChain& chain, ByteWriter& out) {
  out.u8(kPlaces);
  out.varint(index);
  out.varint(chain.size());
  for (const NamedPlace& place : chain) {
    text(place.function, out);
    text(place.file, out);
    out.varint(place.line);
    out.varint(place.declared);
  }
}

void encode_end(ByteWriter& out) { out.u8(kEnd); }

PlaceAnswers decode_places(std::span<const std::uint8_t> bytes, std::size_t count) {
  PlaceAnswers answers;
  ByteReader in(bytes);
  std::vector<bool> answered(count, false);
  while (in.ok() && in.remaining() > 0) {
    const std::uint8_t kind = in.u8();
    if (kind == kEnd) {
      answers.ended = in.done();
      break;
    }
    if (kind != kPlaces) break;
    const std::uint64_t index = in.varint();
    const std::uint64_t places = in.varint();
    if (!in.ok() || index >= count || answered[index]) break;
    if (places == 0 || places > kMaxInlined + 1) break;
    PlaceChain chain;
    for (std::uint64_t i = 0; i < places && in.ok(); ++i) {
      NamedPlace& place = chain.emplace_back();
      place.function = text(in, kMaxSymbolBytes);
      place.file = text(in, kMaxPlaceFileBytes);
      place.line = static_cast<std::uint32_t>(in.varint_up_to(INT32_MAX));
      place.declared = static_cast<std::uint32_t>(in.varint_up_to(INT32_MAX));
    }
    if (!in.ok()) break;
    answered[index] = true;
    answers.found.emplace_back(static_cast<std::size_t>(index), std::move(chain));
  }
  return answers;
}

}  // namespace dynprof
