// Source places of native frames to bytes and back: see table_codec.h.
#include "symbolizer/base/byte_reader.h"
#include "symbolizer/base/byte_writer.h"
#include "symbolizer/recording/table_codec.h"

namespace dynprof::recording {

void encode(std::span<const SourcePlaces> rows, ByteWriter& out) {
  FrameId frame = 0;
  SourcePlace last;
  for (const SourcePlaces& row : rows) {
    out.difference(row.frame, frame);
    frame = row.frame;
    out.varint(row.chain.size());
    for (const SourcePlace& place : row.chain) {
      out.difference(place.function, last.function);
      out.difference(place.file, last.file);
      out.difference(place.line, last.line);
      out.difference(place.declared, last.declared);
      last = place;
    }
  }
}

bool decode(Bytes raw, std::uint32_t count, std::vector<SourcePlaces>& out) {
  ByteReader in(raw);
  FrameId frame = 0;
  SourcePlace last;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    SourcePlaces row;
    row.frame = frame = in.plus_difference32(frame);
    const std::uint64_t places = in.varint();
    if (places == 0 || places > kMaxInlined + 1) return false;
    for (std::uint64_t j = 0; j < places && in.ok(); ++j) {
      last.function = in.plus_difference32(last.function);
      last.file = in.plus_difference32(last.file);
      last.line = in.plus_difference32(last.line);
      last.declared = in.plus_difference32(last.declared);
      row.chain.push_back(last);
    }
    out.push_back(std::move(row));
  }
  return in.done();
}

}  // namespace dynprof::recording
