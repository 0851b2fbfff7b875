// Tables (chunk_list.h) to bytes and back, one chunk's worth at a time. Every chunk stands alone: differences are
// taken from entries of the same chunk only. Layouts: docs/reference/recording-format.md.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "symbolizer/base/byte_writer.h"
#include "symbolizer/recording/model.h"

namespace dynprof::recording {

using Bytes = std::span<const std::uint8_t>;

void encode(std::span<const std::string_view> strings, ByteWriter& out);
void encode(std::span<const Code> codes, ByteWriter& out);
void encode(std::span<const Frame> frames, ByteWriter& out);
void encode(std::span<const StackNode> stacks, StackId first, ByteWriter& out);
void encode(std::span<const Context> contexts, ByteWriter& out);
void encode(std::span<const Thread> threads, ByteWriter& out);

// Each appends exactly `count` entries and returns true, or returns false having appended some.
// Enumerations and shapes are checked here, ids against other tables later. `raw` must outlive the
// views of decode_strings.
bool decode_strings(Bytes raw, std::uint32_t count, std::vector<std::string_view>& out);
bool decode(Bytes raw, std::uint32_t count, std::vector<Code>& out);
bool decode(Bytes raw, std::uint32_t count, std::vector<Frame>& out);
// The first entry's id is out.size(). A caller is always older than its callee, so a stack read
// from a file cannot be a cycle.
bool decode(Bytes raw, std::uint32_t count, std::vector<StackNode>& out);
bool decode(Bytes raw, std::uint32_t count, std::vector<Context>& out);
bool decode(Bytes raw, std::uint32_t count, std::vector<Thread>& out);

}  // namespace dynprof::recording
