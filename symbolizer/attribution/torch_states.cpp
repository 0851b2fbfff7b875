#include "symbolizer/attribution/torch_states.h"

#include <unordered_map>

namespace dynprof {
namespace {

// The outermost ones are recorded, at most as many.
constexpr std::size_t kMaxPhases = 16;

class Names {
 public:
  explicit Names(const Tables& tables) : tables_(tables) {}

  const std::optional<TorchPhase>& operator[](StringId name) {
    auto [it, added] = known_.try_emplace(name);
    if (added) it->second = find_torch_phase(tables_.strings[name]);
    return it->second;
  }

 private:
  const Tables& tables_;
  std::unordered_map<StringId, std::optional<TorchPhase>> known_;
};

TorchReading read(const TorchState& state, Names& names) {
  TorchReading reading;
  if (state.status != TorchStatus::kRead) return reading;
  reading.asked = true;
  reading.id = open_compile(state);
  reading.speaks = is_valid(reading.id);
  if (reading.speaks) reading.attempt = state.attempt;
  reading.phases_cut = state.phases.size() >= kMaxPhases;
  for (std::size_t depth = 0; depth < state.phases.size(); ++depth) {
    const std::optional<TorchPhase>& phase = names[state.phases[depth]];
    if (!phase) continue;
    reading.phase = phase->phase;
    std::optional<CompileKind> kind = kind_of(phase->role);
    if (!kind) continue;
    reading.in_capture = reading.in_capture || kind == CompileKind::kCompiledAutograd;
    // "entire_frame_compile" lies inside "dynamo": the outer one of a compile is its root.
    if (reading.kind == kind && kind == CompileKind::kForward &&
        reading.root_depth + 1 == static_cast<std::int32_t>(depth)) {
      continue;
    }
    reading.kind = kind;
    reading.root_name = state.phases[depth];
    reading.root_depth = static_cast<std::int32_t>(depth);
  }
  bool captures = reading.speaks && reading.id.frame < 0;
  if (captures) {
    reading.kind = CompileKind::kCompiledAutograd;
  } else if (reading.speaks && reading.kind == CompileKind::kCompiledAutograd) {
    // A compile inside the capture, its own phase not open yet, or not any more: the phase is not its.
    reading.kind = CompileKind::kForward;
    reading.root_name = 0;
    reading.root_depth = -1;
  } else if (reading.kind == CompileKind::kCompiledAutograd) {
    reading.kind.reset();
  }
  return reading;
}

}  // namespace

TraceId open_compile(const TorchState& state) {
  if (state.status != TorchStatus::kRead) return {};
  return {state.autograd_id, state.frame_id, state.compile_id};
}

std::optional<CompileKind> kind_of(PhaseRole role) {
  switch (role) {
    case PhaseRole::kForward:
      return CompileKind::kForward;
    case PhaseRole::kBackward:
      return CompileKind::kBackward;
    case PhaseRole::kCompiledAutograd:
      return CompileKind::kCompiledAutograd;
    case PhaseRole::kExport:
      return CompileKind::kExport;
    case PhaseRole::kNone:
    case PhaseRole::kAttempt:
      break;
  }
  return std::nullopt;
}

std::vector<TorchReading> read_torch_states(const Tables& tables) {
  Names names(tables);
  std::vector<TorchReading> readings;
  readings.reserve(tables.contexts.size());
  for (const Context& context : tables.contexts) readings.push_back(read(context.torch, names));
  return readings;
}

}  // namespace dynprof
