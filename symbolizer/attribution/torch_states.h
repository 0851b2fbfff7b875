// What torch's own thread-locals said at each context (source T), made ready for the samples and
// edges that refer to it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "symbolizer/attribution/torch_phases.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

struct TorchReading {
  bool asked = false;   // the thread-locals were read
  bool speaks = false;  // ... and a compile was open: `id` is one
  TraceId id;
  std::int32_t attempt = -1;
  // By the innermost open phase that is a whole compile (or by the id); not known without one.
  std::optional<CompileKind> kind;
  std::optional<Phase> phase;  // of the innermost name that a rule knows
  bool phases_cut = false;     // there may be more, further in
  bool in_capture = false;     // the phase of compiled autograd's capture is open
  // That whole compile's phase: its name and its place among the open ones. -1: none.
  StringId root_name = 0;
  std::int32_t root_depth = -1;
};

// Id of the compile that was open then; not valid: none was, or torch was not asked.
TraceId open_compile(const TorchState& state);

// The kind of compile that a phase with this role is.
std::optional<CompileKind> kind_of(PhaseRole role);

// By ContextId.
std::vector<TorchReading> read_torch_states(const Tables& tables);

}  // namespace dynprof
