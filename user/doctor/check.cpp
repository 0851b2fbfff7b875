#include "user/doctor/check.h"

namespace dynprof {

const char* state_text(CheckState state) {
  switch (state) {
    case CheckState::kOk:
      return "ok";
    case CheckState::kDegraded:
      return "degraded";
    case CheckState::kMissing:
      return "missing";
    case CheckState::kUnknown:
      break;
  }
  return "unknown";
}

CheckState verdict(const Diagnosis& diagnosis) {
  CheckState worst = CheckState::kOk;
  for (const CheckGroup& group : diagnosis.groups) {
    for (const Check& check : group.checks) {
      if (check.state == CheckState::kMissing) return CheckState::kMissing;
      if (check.state == CheckState::kDegraded) worst = CheckState::kDegraded;
    }
  }
  return worst;
}

}  // namespace dynprof
