// One chrome trace file: its head, and one line of JSON per slice. Which samples go into it is
// decided in chrome.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/base/file_output.h"
#include "symbolizer/base/json_writer.h"
#include "symbolizer/profile/timeline.h"

namespace dynprof {

// A thread with its two rows: stacks (the tid itself) and compiles.
struct TraceRow {
  std::int32_t pid = 0;
  std::int32_t tid = 0;
  StringId comm = 0;
  bool has_compiles = false;

  std::int64_t frames_tid() const;
  std::int64_t spans_tid() const;
};

// The escaped texts of a function, made when it is first drawn.
class FrameTexts {
 public:
  FrameTexts(const ResolvedFrames& frames, const StackIndex& index)
      : frames_(frames), index_(index), texts_(index.function_count()) {}

  struct Text {
    bool made = false;
    std::string name;
    std::string file;
  };
  const Text& operator[](FrameId frame);
  const ResolvedFrame& resolved(FrameId frame) const { return frames_[frame]; }

 private:
  const ResolvedFrames& frames_;
  const StackIndex& index_;
  std::vector<Text> texts_;
};

// What all files made in one pass share.
struct TraceShared {
  explicit TraceShared(const Attribution& attribution);
  TraceShared(const TraceShared&) = delete;
  TraceShared& operator=(const TraceShared&) = delete;

  const Attribution& attribution;
  const Tables& tables;
  // A thread that changed its name is several entries of the table but one row, with its last name.
  std::vector<TraceRow> rows;
  std::vector<std::uint32_t> row_of_thread;  // by ThreadId
  StackIndex index;
  // By StackId: frames that called the innermost compile on the stack, 0 if there is none.
  std::vector<std::uint32_t> frames_before_compile;
  FrameTexts texts;
  std::uint64_t period_ns;
  std::uint64_t base_ns;
};

class TraceFile {
 public:
  TraceFile(TraceShared& shared, std::unique_ptr<ByteSink> sink);
  // Everything up to the first slice; only these rows may be drawn.
  void begin(std::span<const TraceRow> rows);
  void frame(const TraceRow& row, const FrameSlice& slice);
  void span(const TraceRow& row, const SpanSlice& slice);
  Result<void> finish();

 private:
  void head();
  void processes(std::span<const TraceRow> rows);
  void threads(const TraceRow& row);
  void compile_args(const Compile& compile, const char* kind);
  bool slice_begin(const char* category, std::int32_t pid, std::int64_t tid, std::uint64_t begin_ns,
                   std::uint64_t end_ns);
  std::uint64_t relative(std::uint64_t ns) const;
  template <class Value>
  void metadata(const char* name, std::int32_t pid, std::int64_t tid, const char* argument,
                const Value& value);

  TraceShared& shared_;
  std::unique_ptr<ByteSink> sink_;
  JsonWriter json_;
};

}  // namespace dynprof
