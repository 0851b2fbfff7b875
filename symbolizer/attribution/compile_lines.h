// The user's lines each compile spent its time on, and the threads that waited for the compile lock
// meanwhile: from looks at the target's memory, some 20 a second. Texts come from the target.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/spans.h"

namespace dynprof {

// What a compile did with a line, in the words of the recording.
enum class LineUse : std::uint8_t { kTracing, kGraphEnd, kRetracing, kLowering, kCount };
const char* line_use_text(LineUse use);  // "tracing", "graph_end", ...

struct LineTime {
  std::string file;
  std::int32_t line = 0;
  std::string function;
  std::array<std::uint64_t, static_cast<std::size_t>(LineUse::kCount)> ns{};
  std::uint64_t sum_ns() const;
};

struct LockWaiter {
  std::int32_t tid = 0;
  std::uint64_t ns = 0;
};

class CompileLines {
 public:
  explicit CompileLines(const Attribution& attribution);

  // The dearest first; together less than the compile's wall time, since not all of it has a line.
  const std::vector<LineTime>& of(CompileIndex compile) const { return lines_[compile]; }
  // Threads that waited for the compile lock while this compile held it, the longest first.
  const std::vector<LockWaiter>& waiters(CompileIndex compile) const { return waiters_[compile]; }

 private:
  void add(const Attribution& attribution, const LineMark& mark);

  std::vector<std::vector<LineTime>> lines_;
  std::vector<std::vector<LockWaiter>> waiters_;
};

}  // namespace dynprof
