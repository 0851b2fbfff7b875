// The user's lines each compile spent its time on, and the threads that waited for the compile lock
// meanwhile: from samples of the target's memory, some 20 a second. Texts come from the target.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

inline constexpr std::array kLineUses = {LineUse::kTracing, LineUse::kGraphEnd, LineUse::kRetracing,
                                         LineUse::kLowering};

// What a compile does at a line, in front of the line: "tracing", "compiling the graph that ends at", ...
const char* line_use_words(LineUse use);

struct LineTime {
  std::string file;
  std::int32_t line = 0;
  std::string function;
  std::array<std::uint64_t, kLineUses.size()> ns{};  // by use, in the order of kLineUses
  std::uint64_t of(LineUse use) const { return ns[static_cast<std::size_t>(use) - 1]; }
  std::uint64_t sum_ns() const;
};

struct LockWaiter {
  std::int32_t tid = 0;
  std::uint64_t ns = 0;
};

class CompileLines {
 public:
  explicit CompileLines(const Attribution& attribution);

  // Those with most time first; together less than the compile's wall time, since not all of it has a line.
  const std::vector<LineTime>& of(CompileIndex compile) const { return lines_[compile]; }
  // Threads that waited for the compile lock while this compile held it, the longest first.
  const std::vector<LockWaiter>& waiters(CompileIndex compile) const { return waiters_[compile]; }

 private:
  void add(const Attribution& attribution, const LineSample& sample);
  void add(const Attribution& attribution, const LockSample& sample);

  std::vector<std::vector<LineTime>> lines_;
  std::vector<std::vector<LockWaiter>> waiters_;
};

// The innermost compile open on a thread at a moment; a valid id must be its id. kNoCompile: none.
CompileIndex compile_open_at(const Attribution& attribution, std::int32_t pid, std::int32_t tid,
                             std::uint64_t time_ns, const TraceId& id);

}  // namespace dynprof
