// What a recording holds of torch.compile beside phases (SpanEdge): graph breaks, where compiles were
// when the target's memory was read, some 20 times a second and at both ends, and how often compiled regions ran. Texts
// come from the target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "symbolizer/recording/ids.h"

namespace dynprof {

// A call in the user's code.
struct UserCall {
  StringId file = 0;
  std::uint32_t line = 0;  // 0: not known
  StringId function = 0;
  bool operator==(const UserCall&) const = default;
};

// The compile open on the thread broke its graph.
inline constexpr std::size_t kMaxBreakCalls = 256;
struct GraphBreak {
  std::uint64_t time_ns = 0;
  ThreadId thread = 0;
  ContextId context = 0;  // its `torch` part: that compile
  StringId reason = 0;    // 0: torch's note of it was not readable, and `calls` is empty
  // How the line that broke was reached, outermost first: that line is in the last.
  std::vector<UserCall> calls;
  bool operator==(const GraphBreak&) const = default;
};

// What a compile did with a line of the user's code.
enum class LineUse : std::uint8_t {
  kTracing = 1,    // Dynamo traced it
  kGraphEnd = 2,   // the graph that was compiled ends there
  kRetracing = 3,  // an operator of the graph, while AOTAutograd traced it again
  kLowering = 4,   // an operator of the graph, while Inductor lowered it
};
const char* line_use_text(LineUse use);  // "tracing", "graph_end", ...

// A line that a compile was at.
struct LineSample {
  std::uint64_t time_ns = 0;
  std::uint64_t weight_ns = 0;  // since the sample before: the time it stands for; 0: the first
  ThreadId thread = 0;
  ContextId context = 0;  // its `torch` part: the compile
  LineUse use = LineUse::kTracing;
  UserCall line;
  bool operator==(const LineSample&) const = default;
};

// An nn.Module that a compile was at an operator of; taken together with the LineSample of that time.
struct ModuleSample {
  std::uint64_t time_ns = 0;
  std::uint64_t weight_ns = 0;  // as in LineSample
  ThreadId thread = 0;
  ContextId context = 0;  // its `torch` part: the compile
  LineUse use = LineUse::kTracing;
  StringId module = 0;  // by torch's source of it: "L['self'].blocks.0"
  bool operator==(const ModuleSample&) const = default;
};

// An open compile, as the target's memory had it when the recording began or ended.
struct CompileProgress {
  std::uint64_t time_ns = 0;
  std::uint64_t begun_ns = 0;  // when torch began it, maybe long before the recording; 0: not known
  ThreadId thread = 0;
  ContextId context = 0;            // its `torch` part: the compile, and its open phases
  LineUse use = LineUse::kTracing;  // of `line`; void where that has no file
  UserCall line;
  // Of the graph that Inductor lowers: the node it is at, from 1, of how many; 0: not known.
  std::uint32_t node = 0, nodes = 0;
  bool operator==(const CompileProgress&) const = default;
};

// A thread waited for the lock that torch holds while it compiles.
struct LockSample {
  std::uint64_t time_ns = 0;
  std::uint64_t weight_ns = 0;  // as in LineSample
  ThreadId thread = 0;          // who waited
  std::int32_t holder_tid = 0;  // of the same process; 0: not known
  bool operator==(const LockSample&) const = default;
};

// A thread compiled or tuned a kernel with Triton.
struct TritonSample {
  std::uint64_t time_ns = 0;
  ThreadId thread = 0;
  // Which compilation of its process, from 1 on: the same number while it goes on. 0: a configuration was tried.
  std::uint32_t compilation = 0;
  StringId kernel = 0;  // the name of its function: "add_kernel"
  bool operator==(const TritonSample&) const = default;
};

// Whether runs of compiled regions are counted and timed after a RegionRuns. Less than that in a row without a name
// only: the process ran them too often.
enum class RunsThen : std::uint8_t {
  kCounted = 0,
  kNotCounted = 1,
  kNotTimed = 2,  // they are counted
};

// How a program marks a range of its own.
enum class AnnotationKind : std::uint8_t {
  kRecordFunction = 1,  // torch.profiler.record_function
  kItt = 2,             // torch.profiler.itt
  kNvtx = 3,            // torch.cuda.nvtx, nvtxRangePush
};

// A range that a thread marked, with exact times.
struct Annotation {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  ThreadId thread = 0;
  AnnotationKind kind = AnnotationKind::kRecordFunction;
  bool end_seen = true;  // false: it was open until then, at least
  StringId name = 0;     // cut to 127 bytes; 0: it could not be read
  bool operator==(const Annotation&) const = default;
};

// Runs of a region that began in a time, or with `name` 0: in that time all runs of the process were counted.
struct RegionRuns {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  std::int32_t pid = 0;
  StringId name = 0;  // as in SpanEdge, kRegionBegin
  CodeId code = 0;    // what it runs, 0: not known
  RunsThen then = RunsThen::kCounted;
  std::uint64_t calls = 0;      // runs that began
  std::uint64_t timed = 0;      // runs whose begin and end were both seen
  std::uint64_t time_ns = 0;    // of those, from begin to end
  std::uint64_t nested_ns = 0;  // of that, in other regions that ran inside them
  std::uint64_t lookups = 0;    // runs for which torch's search (cache lookup, guards) was timed
  std::uint64_t lookup_ns = 0;  // of those searches
  bool operator==(const RegionRuns&) const = default;
};

}  // namespace dynprof
