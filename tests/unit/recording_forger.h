// Recordings made chunk by chunk: every checksum is right, the content need not be.
#pragma once

#include <gtest/gtest.h>

#include "symbolizer/base/byte_writer.h"
#include "symbolizer/recording/format.h"
#include "tests/unit/recording_example.h"

namespace dynprof {

using namespace recording;

inline std::span<const std::uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
inline std::string as_text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::string chunk(ChunkHeader header, std::span<const std::uint8_t> payload) {
  header.stored_bytes = header.raw_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = checksum(payload);
  return as_text(encode_chunk_header(header)) + as_text(payload);
}

class Forger {
 public:
  Forger() { add(ChunkKind::kMeta, 0, 1, "{}"); }
  void add(ChunkKind kind, std::uint64_t first, std::uint32_t count, std::string_view payload) {
    ChunkHeader header;
    header.kind = kind;
    header.first = first;
    header.count = count;
    header.sequence = sequence_++;
    file_ += chunk(header, as_bytes(payload));
  }
  void add(ChunkKind kind, std::uint64_t first, std::uint32_t count, const ByteWriter& payload) {
    add(kind, first, count, as_text(payload.view()));
  }
  // One thread and one sample of it with the given ids.
  void add_sample(ThreadId thread, StackId stack, ContextId context, std::uint64_t number = 0) {
    ByteWriter out;
    for (std::uint64_t value : {1000u, 5000u, 1u, thread}) out.varint(value);
    auto column = [&](std::initializer_list<std::uint64_t> values) {
      ByteWriter bytes;
      for (std::uint64_t value : values) bytes.varint(value);
      out.sized(bytes.view());
    };
    column({0});
    column({0});
    column({zigzag(stack)});
    column({context, 0});
    column({0, 0});
    add(ChunkKind::kSamples, number, 1, out);
  }
  void raw(std::string_view bytes) { file_ += bytes; }
  std::uint32_t next_sequence() { return sequence_++; }
  std::unique_ptr<Recording> read() const {
    auto recording = read_bytes(file_);
    EXPECT_TRUE(recording.has_value());
    // Walk everything: at() and the sanitizers look at each id.
    texts_of(**recording);
    const Tables& tables = (*recording)->tables();
    for (const Frame& frame : tables.frames) frame_text(tables, frame);
    for (const Process& p : tables.processes) tables.strings.at(p.torch);
    for (std::size_t i = 1; i < tables.stacks.size(); ++i) EXPECT_LT(tables.stacks[i].caller, i);
    return std::move(*recording);
  }

 private:
  std::string file_ = as_text(encode_file_header({}));
  std::uint32_t sequence_ = 0;
};

inline std::string varints(std::initializer_list<std::uint64_t> values) {
  ByteWriter out;
  for (std::uint64_t value : values) out.varint(value);
  return as_text(out.view());
}

}  // namespace dynprof
