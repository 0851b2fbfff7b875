// The functions of a recording: frames without their lines. A function is what pstats keys by:
// file, first line and name (co_name, as cProfile has it); native code has no file and no line. A
// native function is one, inlined or not.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/resolved.h"

namespace dynprof {

using FunctionId = std::uint32_t;

struct Function {
  FrameKind kind = FrameKind::kPython;
  std::string_view file;  // Python: co_filename; otherwise "~"
  std::int32_t first_line = 0;
  std::string_view name;      // Python: co_name; otherwise "<symbol in object>"
  std::string_view qualname;  // to show: Python's qualname (of the first such frame), the symbol
  std::string_view object;    // native and kernel: path of the mapped file
};

class Functions {
 public:
  // Id of the function that stands for a stack without frames.
  static constexpr FunctionId kNoStack = 0;

  explicit Functions(const ResolvedFrames& frames);
  Functions(const Functions&) = delete;
  Functions& operator=(const Functions&) = delete;

  const Function& operator[](FunctionId id) const { return functions_[id]; }
  std::size_t size() const { return functions_.size(); }
  // By FrameId.
  std::span<const FunctionId> of_frames() const { return of_frames_; }

 private:
  std::vector<Function> functions_;
  std::vector<FunctionId> of_frames_;
  std::deque<std::string> names_;  // of native functions
};

}  // namespace dynprof
