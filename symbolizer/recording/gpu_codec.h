// GPU launches and records to bytes and back: see table_codec.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "symbolizer/base/byte_writer.h"
#include "symbolizer/recording/gpu_model.h"

namespace dynprof::recording {

// Every field takes a byte at least.
inline constexpr std::uint32_t kSmallestLaunchBytes = 7;
inline constexpr std::uint32_t kSmallestRecordBytes = 30;

void encode(std::span<const GpuLaunch> launches, ByteWriter& out);
void encode(std::span<const GpuRecord> records, ByteWriter& out);
bool decode(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<GpuLaunch>& out);
bool decode(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<GpuRecord>& out);

}  // namespace dynprof::recording
