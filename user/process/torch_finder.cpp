#include "user/process/torch_finder.h"

#include <algorithm>

#include "user/history/graph_breaks.h"
#include "user/target/backward_nodes.h"
#include "user/target/clock.h"
#include "user/target/marker_rules.h"
#include "user/target/torch_threads.h"

namespace dynprof {
namespace {

// One cheap look a second.
constexpr std::uint64_t kLookNs = 1'000'000'000;
// While torch is being imported, which takes seconds: its libraries are to be probed before it is used.
constexpr std::uint64_t kImportLookNs = 100'000'000;
constexpr unsigned kImportLooks = 300;
// While the first compile goes on, between two looks for what it makes.
constexpr std::uint64_t kTracingLookNs = 20'000'000;
constexpr std::uint64_t kSlowestTracingLookNs = 1'000'000'000;

}  // namespace

void TorchFinder::look_for_tracing() {
  if (auto functions = resolve_phase_functions(python_.objects(), python_.runtime()))
    std::copy(functions->begin(), functions->end(), torch_.layout.phase_functions);
  torch_.layout.break_list = graph_break_list(python_.objects(), python_.runtime());
  auto watch = resolve_inline_function(python_.objects(), python_.runtime());
  if (!watch) return;
  torch_.layout.inline_code = watch->code;
  torch_.layout.inline_begin = watch->begin;
  torch_.layout.inline_end = watch->end;
  torch_.layout.inline_begin_unit = watch->begin_unit;
  torch_.layout.inline_end_unit = watch->end_unit;
  torch_.layout.inline_slot = watch->slot;
}

void TorchFinder::look(std::uint64_t now_ns) {
  schedule_.next_ns = now_ns + kLookNs;
  schedule_.marker_seen = false;
  auto found = resolve_torch(python_.objects(), python_.runtime());
  if (!found) {
    if (schedule_.looks == 0) identity_.set_no_compile_at_start(true);
    return;
  }
  const bool probed = probed_ || !probes_wanted_;
  if (!probed && schedule_.looks < kImportLooks) schedule_.next_ns = now_ns + kImportLookNs;
  if (torch_.version != found->version) identity_.changed();
  const std::uint16_t node_object = torch_.layout.node_object;
  torch_ = std::move(*found);
  torch_.layout.node_object =
      node_object ? node_object : static_cast<std::uint16_t>(first_node_words() | DP_NODE_SEARCHED);
  use_functions();
  look_for_tracing();
  auto markers = resolve_markers(python_.objects(), python_.runtime());
  for (const ResolvedMarker& marker : markers) python_.add_marker(marker);
  if (schedule_.looks == 0)
    identity_.set_no_compile_at_start(!markers.empty() && !python_.runs_marker());
  // Markers in modules that are imported later are found when they are first sampled.
  if (torch_.complete && !markers.empty() && probed) schedule_.next_ns = 0;
}

// The first compile makes the first CompileContext, and may import Dynamo's tracer: only then is it known how
// the one is laid out, and where the other is. Some torch has no such tracer, so this is tried less and
// less often.
bool TorchFinder::look_while_compiling(std::uint64_t now_ns) {
  if (!python_ || (torch_.complete && torch_.layout.inline_code != 0)) return false;
  if (now_ns < next_tracing_look_ns_) return false;
  tracing_backoff_ns_ = std::clamp(2 * tracing_backoff_ns_, kTracingLookNs, kSlowestTracingLookNs);
  if (torch_.complete)
    look_for_tracing();
  else
    look(now_ns);
  next_tracing_look_ns_ = monotonic_ns() + tracing_backoff_ns_;
  return true;
}

void TorchFinder::forget() {
  torch_ = {};
  probed_ = false;
  functions_ = {};
  phase_names_.clear();
}

void TorchFinder::set_probed(const RunFunctions& functions) {
  probed_ = true;
  functions_ = functions;
  use_functions();
}

void TorchFinder::use_functions() {
  torch_.layout.lookup = functions_.lookup;
  torch_.layout.region = functions_.region;
  torch_.layout.node = functions_.node;
}

StringId TorchFinder::phase_name(const dp_phase_name& name, RecordingWriter& writer) {
  constexpr std::size_t kMaxNames = 4096;  // torch has about a hundred
  if (!python_) return 0;
  if (phase_names_.size() >= kMaxNames) phase_names_.clear();
  const std::pair key(name.object, name.hash);
  auto at = phase_names_.find(key);
  if (at != phase_names_.end()) return at->second;
  StringId text = writer.string(read_phase_name(python_.objects(), name));
  if (text != 0) phase_names_.emplace(key, text);
  return text;
}

}  // namespace dynprof
