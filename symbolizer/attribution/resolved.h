// Frames with names and lines: the step from a recording's tables to something a person can read.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/generated_copies.h"
#include "symbolizer/base/text.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

// One frame, named. Views point into the Tables (or into the resolver) and live as long.
struct ResolvedFrame {
  FrameKind kind = FrameKind::kPython;
  Unreadable unreadable = Unreadable::kNo;
  std::string_view
      function;           // Python: qualname, native: symbol; "<stale code>" and such if unreadable
  std::string_view name;  // Python: co_name, as pstats wants it; native: symbol
  // Python: co_filename, native: path of the object. Of code torch generated, the copy's path in the
  // output directory ("generated/0_0/forward_wrapper.py"): the original may be gone.
  std::string_view file;
  bool generated = false;
  std::string_view source_file;  // native, where DWARF tells it: the file of `line`
  bool inlined = false;          // native: it was inlined into the frame that calls it
  std::int32_t first_line = 0;   // of the function; native: 0 where it is not known
  std::int32_t line = 0;         // 0: no line
};

class ResolvedFrames {
 public:
  explicit ResolvedFrames(const Tables& tables, const std::vector<GeneratedCopy>& copies = {});
  ResolvedFrames(const ResolvedFrames&) = delete;
  ResolvedFrames& operator=(const ResolvedFrames&) = delete;

  const ResolvedFrame& operator[](FrameId id) const { return frames_[id]; }
  std::size_t size() const { return frames_.size(); }

 private:
  static constexpr std::size_t kReasons = 16;

  void name_copies(const std::vector<GeneratedCopy>& copies);

  std::vector<ResolvedFrame> frames_;
  std::deque<std::string> paths_;           // of copies
  std::array<std::string, kReasons> made_;  // per Unreadable: texts that are in no table
};

}  // namespace dynprof
