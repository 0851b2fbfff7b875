// Births and deaths of processes to bytes and back: see table_codec.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "symbolizer/base/byte_writer.h"
#include "symbolizer/recording/life_model.h"

namespace dynprof::recording {

void encode(std::span<const ProcessLife> lives, ByteWriter& out);
bool decode(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<ProcessLife>& out);

}  // namespace dynprof::recording
