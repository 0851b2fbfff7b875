// Which frames of torch tell what is being compiled, as data: a function, the local that holds the
// answer, and the torch versions that have it. Locals are found by name in each process, because
// their slots move between torch and CPython versions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bpf/events.h"
#include "user/target/code_reader.h"
#include "user/target/python_runtime.h"

namespace dynprof {

struct MarkerRule {
  std::string_view module;    // as in sys.modules
  std::string_view file;      // end of co_filename
  std::string_view qualname;  // co_qualname; on 3.10 its last part is compared with co_name
  std::string_view local;
  std::string_view code_local;  // the code object being compiled; "": none
  dp_marker_kind kind = DP_MARKER_NONE;
  std::string_view torch;  // versions it was checked with
};
std::span<const MarkerRule> marker_rules();

struct ResolvedMarker {
  std::uint64_t code = 0;
  dp_marker_code marker{};
  const MarkerRule* rule = nullptr;
};

// The marker functions of the modules that are imported by now; the others are met by match_marker.
std::vector<ResolvedMarker> resolve_markers(RemoteObjects& objects, const PythonRuntime& runtime);

// The function torch enters for each user function that Dynamo traces, and what is watched of it:
// `profile_inline_call` of torch 2.13 and 2.14. With torch's own profiler off, the second line of its
// body yields, and the third is reached when the trace succeeded. CPython 3.11 and later.
struct InlineWatch {
  std::uint64_t code = 0;
  std::uint64_t begin = 0;  // addresses of instructions
  std::uint64_t end = 0;
  std::uint16_t slot = 0;
};
std::optional<InlineWatch> resolve_inline_watch(RemoteObjects& objects,
                                                const PythonRuntime& runtime);

// Whether a code object seen for the first time is a marker. Cheap for those that are not.
std::optional<ResolvedMarker> match_marker(CodeReader& reader, const RemoteCode& code,
                                           std::uint16_t python);

}  // namespace dynprof
