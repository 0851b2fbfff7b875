// Samples to bytes and back, a chunk at a time, in columns: what belongs together compresses better.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "symbolizer/base/byte_writer.h"
#include "symbolizer/recording/model.h"

namespace dynprof::recording {

// What is predicted from a thread's previous sample in the chunk.
struct ThreadState {
  ThreadId thread = 0;
  std::uint64_t time_ns = 0;
  StackId stack = 0;
};

class SampleEncoder {
 public:
  explicit SampleEncoder(std::uint64_t period_ns) : period_ns_(period_ns) {}
  void encode(std::span<const Sample> samples, ByteWriter& out);

 private:
  std::uint64_t period_ns_;
  std::vector<ThreadState> threads_;  // of this chunk, in order of appearance
  std::vector<std::uint32_t> local_;  // by ThreadId: index into threads_ + 1, 0 for none
  ByteWriter thread_column_, time_column_, stack_column_, context_column_, flags_column_;
};

class SampleDecoder {
 public:
  // Replaces `out` by exactly `count` samples, or returns false. Ids are not checked here.
  bool decode(std::span<const std::uint8_t> raw, std::uint32_t count, std::vector<Sample>& out);
  // The sampling period that the chunk was written with; a chunk stands without the meta chunk.
  std::uint64_t period_ns() const { return period_ns_; }

 private:
  std::uint64_t period_ns_ = 0;
  std::vector<ThreadState> threads_;
};

}  // namespace dynprof::recording
