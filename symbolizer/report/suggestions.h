// What to change in the program, and what in the recording says so: a table of rules over Findings.
// A rule without evidence in the recording is silent.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/report/findings.h"

namespace dynprof {

struct Suggestion {
  std::string_view rule;
  std::string change;         // "torch._dynamo.mark_dynamic(x, 1) ..."
  std::string evidence;       // "Block.forward model.py:7 recompiled 2 times: ..."
  std::uint64_t cost_ns = 0;  // compile time that it is about; 0: not known
};

enum class EvidenceIn : std::uint8_t {
  kRecompileReason,  // `text` is in torch's reason for a recompile
  kBreakReason,      // ... for a graph break
  kNumbers,          // `judge` decides
};

struct SuggestionRule {
  std::string_view name;
  EvidenceIn in = EvidenceIn::kNumbers;
  std::string_view text;
  std::string_view change;
  // kRecompileReason: whether the rule fits the function's recompiles as a whole; may complete
  // `change`. Null: it does.
  bool (*fits)(const Recompiles& group, std::string& change) = nullptr;
  // kNumbers: whether there is evidence, and which.
  bool (*judge)(const Findings& findings, Suggestion& suggestion) = nullptr;
};

// In this order; the first rule that fits a reason is the one for it.
std::span<const SuggestionRule> suggestion_rules();

// The most costly first.
std::vector<Suggestion> suggest(const Findings& findings);

}  // namespace dynprof
