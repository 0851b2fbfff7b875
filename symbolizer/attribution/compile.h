// One compile attempt: the unit everything is reported by.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

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

enum class CompileKind : std::uint8_t { kForward, kBackward, kCompiledAutograd, kExport };
const char* compile_kind_text(CompileKind kind);  // as in compiles.json

using CompileIndex = std::uint32_t;
inline constexpr CompileIndex kNoCompile = std::numeric_limits<CompileIndex>::max();

struct Compile {
  TraceId id;
  std::int32_t attempt = 0;
  CompileKind kind = CompileKind::kForward;
  std::uint32_t repeat =
      1;  // 2 for the second compile of the same id (after torch._dynamo.reset) ...
  ThreadId thread = 0;
  CodeId user_code = 0;        // the function compiled; a backward has its forward's; 0: not known
  std::uint64_t first_ns = 0;  // first and last sample inside it
  std::uint64_t last_ns = 0;
  std::uint64_t samples = 0;
  bool began_before = false;  // open at the first sample of its thread: we attached in the middle
  bool open_at_end = false;   // still open when the recording ended
};

}  // namespace dynprof
