// Object files to bytes and back: see table_codec.h.
#include "symbolizer/base/byte_reader.h"
#include "symbolizer/base/byte_writer.h"
#include "symbolizer/recording/table_codec.h"

namespace dynprof::recording {

void encode(std::span<const ObjectFile> files, ByteWriter& out) {
  for (const ObjectFile& file : files) {
    out.varint(file.object);
    out.varint(file.build_id);
    out.varint(file.segments.size());
    for (const FileSegment& segment : file.segments) {
      out.varint(segment.offset);
      out.varint(segment.size);
      out.varint(segment.address);
    }
  }
}

bool decode(Bytes raw, std::uint32_t count, std::vector<ObjectFile>& out) {
  ByteReader in(raw);
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    ObjectFile file;
    file.object = in.varint32();
    file.build_id = in.varint32();
    const std::uint64_t segments = in.varint();
    if (segments > kMaxFileSegments) return false;
    for (std::uint64_t j = 0; j < segments && in.ok(); ++j) {
      FileSegment segment;
      segment.offset = in.varint();
      segment.size = in.varint();
      segment.address = in.varint();
      file.segments.push_back(segment);
    }
    out.push_back(std::move(file));
  }
  return in.done();
}

}  // namespace dynprof::recording
