// Which frames of torch show what is being compiled, as data: a function, the local that holds the
// answer, and the torch versions that have it. Locals are found by name in each process, because
// their slots move between torch and CPython versions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
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

// The functions of torch 2.6 to 2.15 that call time.time_ns: `dynamo_timed`, `chromium_event_timed`,
// begin and end of a compiled autograd capture, and two that time parts of the tracing. Code 0 in those
// that this torch lacks. Empty: torch._dynamo.utils is not imported yet.
using PhaseFunctions = std::array<dp_phase_function, DP_PHASE_FUNCTIONS>;
std::optional<PhaseFunctions> resolve_phase_functions(RemoteObjects& objects,
                                                      const PythonRuntime& runtime);
// The name of a phase that always has the same one; "": its name is in a local.
std::string_view fixed_phase_name(std::size_t function);
// What the kernel side would have read in a frame that calls time.time_ns, from outside; nothing where
// that is no frame of such a function any more.
struct PhaseFrame {
  std::uint16_t edge = 0;  // enum dp_phase_edge
  std::string name;
};
std::optional<PhaseFrame> read_phase_frame(RemoteObjects& objects,
                                           std::span<const dp_phase_function> functions,
                                           const dp_phase_event& event);
// Whether the phase that began with `event` is still open: its frame holds the time it began at, which
// time.time_ns gave `clock_offset_ns` ahead of the event's clock. Nothing: not known, as of a function that
// keeps no time, or where the call has not come back yet.
std::optional<bool> is_phase_open(RemoteObjects& objects, const PythonRuntime& runtime,
                                  std::span<const dp_phase_function> functions,
                                  const dp_phase_event& event, std::int64_t clock_offset_ns);
// Whether a code object may be the one of `dynamo_timed` or `chromium_event_timed`.
bool is_phase_function(const RemoteCode& code, std::uint16_t python);

// The function torch enters for each user function that Dynamo traces, and what is watched of it:
// `profile_inline_call` of torch 2.13 and 2.14. With torch's own profiler off, the second line of its
// body yields, and the third is reached when the trace succeeded.
struct InlineFunction {
  std::uint64_t code = 0;
  std::uint64_t begin = 0;  // addresses of instructions
  std::uint64_t end = 0;
  std::uint16_t begin_unit =
      0;  // the same two, in code units from the function's first instruction
  std::uint16_t end_unit = 0;
  std::uint16_t slot = 0;
};
std::optional<InlineFunction> resolve_inline_function(RemoteObjects& objects,
                                                      const PythonRuntime& runtime);

// Whether a code object seen for the first time is a marker. Cheap for those that are not.
std::optional<ResolvedMarker> match_marker(CodeReader& reader, const RemoteCode& code,
                                           std::uint16_t python);

}  // namespace dynprof
