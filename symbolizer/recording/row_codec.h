// Rows of lists to bytes and back, one chunk's worth at a time, as row_formats.h describes them.
// Every chunk stands alone: differences are taken from rows of the same chunk only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "symbolizer/base/byte_writer.h"
#include "symbolizer/recording/model.h"

namespace dynprof::recording {

// decode() appends exactly `count` rows and returns true, or returns false having appended some.
// Enumerations and shapes are checked here, ids against other tables later.
#define DYNPROF_CODEC(kind, number, name, Row, ...)        \
  void encode(std::span<const Row> rows, ByteWriter& out); \
  bool decode(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<Row>& out);
DYNPROF_LISTS(DYNPROF_CODEC)
#undef DYNPROF_CODEC

}  // namespace dynprof::recording
