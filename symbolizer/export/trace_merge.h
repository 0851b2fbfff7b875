// What a trace that would be too large leaves out: waits and slices shorter than a grain of time are drawn as
// one for each thread and grain. A grain of 0 merges nothing.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/base/file_output.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

// Tried in turn until the file is small enough; with the last nothing is left but the longest of slices.
inline constexpr std::array<std::uint64_t, 7> kTraceGrains = {
    0, 1'000'000, 8'000'000, 64'000'000, 512'000'000, 4'096'000'000, 3'600'000'000'000};

// "waits and slices shorter than 8 ms are merged, ..."
std::string merged_text(std::uint64_t grain_ns);

// Counts what is written and keeps nothing of it; fails as soon as that is more than the limit.
class CountingSink final : public ByteSink {
 public:
  CountingSink(std::uint64_t limit, std::uint64_t& bytes) : limit_(limit), bytes_(bytes) {}
  void write(std::string_view bytes) override { bytes_ += bytes.size(); }
  bool failed() const override { return bytes_ > limit_; }
  Result<void> finish() override { return {}; }

 private:
  std::uint64_t limit_;
  std::uint64_t& bytes_;
};

// Waits of one thread that begin in the same grain.
struct MergedWaits {
  std::uint64_t begin_ns = 0;  // of the first
  std::uint64_t end_ns = 0;    // of the last
  std::uint64_t waited_ns = 0;
  std::uint64_t runnable_ns = 0;
  std::uint64_t count = 0;
  Wait longest;  // its stack stands for all of them

  // False: it is too long, or of another grain.
  bool add(const Wait& wait, std::uint64_t grain_ns);
};

// Short slices of rows that are drawn in order of their begin.
class SliceMerger {
 public:
  using Row = std::pair<std::int32_t, std::int64_t>;
  struct Merged {
    Row row;
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;
    std::uint64_t busy_ns = 0;  // what is inside another one counted once
    std::uint64_t count = 0;
  };

  explicit SliceMerger(std::uint64_t grain_ns) : grain_ns_(grain_ns) {}
  // What must be drawn before this slice, if anything; then whether the slice itself is to be drawn.
  std::pair<std::optional<Merged>, bool> add(Row row, std::uint64_t begin_ns, std::uint64_t end_ns);
  // What is left.
  std::vector<Merged> take();

 private:
  struct State {
    Merged waiting;
    std::vector<std::uint64_t> open;  // ends of the slices drawn that are around what comes next
  };
  std::uint64_t grain_ns_;
  std::map<Row, State> rows_;
};

}  // namespace dynprof
