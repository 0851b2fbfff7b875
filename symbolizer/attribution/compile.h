// One compile attempt: the unit everything is reported by.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "symbolizer/recording/model.h"

namespace dynprof {

// torch's CompileId: "0/0", "!1/0/0" inside compiled autograd, "!1" for its capture. -1: absent.
struct TraceId {
  std::int32_t autograd = -1;
  std::int32_t frame = -1;
  std::int32_t compile = -1;
  bool operator==(const TraceId&) const = default;
  auto operator<=>(const TraceId&) const = default;
  std::string text() const;
};

// The other way round; not valid (all -1) for any other text.
TraceId parse_trace_id(std::string_view text);
// Whether torch could have given it.
bool is_valid(const TraceId& id);

enum class CompileKind : std::uint8_t { kForward, kBackward, kCompiledAutograd, kExport };
const char* compile_kind_text(CompileKind kind);  // as in compiles.json

using CompileIndex = std::uint32_t;
inline constexpr CompileIndex kNoCompile = std::numeric_limits<CompileIndex>::max();

// Of a compile that only torch's own history knows: no thread is.
inline constexpr ThreadId kNoThread = std::numeric_limits<ThreadId>::max();
inline constexpr std::uint32_t kNoIndex = std::numeric_limits<std::uint32_t>::max();

struct Compile {
  TraceId id;
  std::int32_t attempt = 0;
  CompileKind kind = CompileKind::kForward;
  std::uint32_t repeat =
      1;  // 2 for the second compile of the same id (after torch._dynamo.reset) ...
  ThreadId thread = 0;
  std::int32_t pid = 0;
  CodeId user_code = 0;  // the function compiled; a backward has its forward's; 0: not known
  std::uint32_t progress = kNoIndex;  // index of Tables::compile_progress: the last that was read
  // Begin and end if `exact`, else the first and the last moment known to be inside it (those of
  // samples if `timing` is kNoIndex). 0: no such moment.
  std::uint64_t first_ns = 0;
  std::uint64_t last_ns = 0;
  std::uint64_t started_ns = 0;  // when it began, if that is known and before the recording did
  std::uint64_t samples = 0;
  std::uint64_t cpu_ns = 0;    // that these stand for
  bool exact = false;          // from edges, or from torch itself
  bool began_before = false;   // open at the first sample of its thread: we attached in the middle
  bool open_at_end = false;    // still open when the recording ended
  bool before_attach = false;  // over before the recording began: from torch's history
  std::uint32_t episode = 0;   // the attempts of one compile share it, nothing else does
  std::uint32_t timing = kNoIndex;   // index of Attribution::exact()
  std::uint32_t history = kNoIndex;  // index of Attribution::history()
  std::uint64_t noticed_ns = 0;      // orders them: begin, or when it was first seen

  bool complete() const { return !began_before && !open_at_end; }
  // From begin to end as far as known, 0 if not known at all. A sample stands for one period.
  std::uint64_t wall_ns(std::uint64_t period_ns) const {
    if (exact || timing != kNoIndex) return last_ns - first_ns;
    return first_ns == 0 ? 0 : last_ns - first_ns + period_ns;
  }
};

}  // namespace dynprof
