// torch's own names of phases (`dynamo_timed` and chromium event names, and the keys of its wait
// counters) and what they are in the few words of Phase. As data: torch 2.6 to 2.14 have about 120
// names, and a name no rule knows counts as part of the phase around it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

// What a phase of this name is, beyond its word.
enum class PhaseRole : std::uint8_t {
  kNone,
  // It is a whole compile of that kind, unless a compile of the same id is open around it.
  kForward,
  kBackward,
  kCompiledAutograd,  // the capture; what it captured is compiled later, as a forward
  kExport,            // strict torch.export, AOTInductor
  kAttempt,           // one attempt: compile_attempt_0 (torch 2.9 and later)
};

enum class NameMatch : std::uint8_t { kExact, kPrefix, kSuffix, kPart };

struct TorchPhaseRule {
  std::string_view name;
  Phase phase;
  PhaseRole role = PhaseRole::kNone;
  NameMatch match = NameMatch::kExact;
};

// All rules, for tests.
std::span<const TorchPhaseRule> torch_phase_rules();

struct TorchPhase {
  Phase phase = Phase::kRuntime;
  PhaseRole role = PhaseRole::kNone;
  std::int32_t attempt = -1;  // kAttempt: its number
};

// Nothing for a name no rule knows.
std::optional<TorchPhase> find_torch_phase(std::string_view name);

}  // namespace dynprof
