// The result of `doctor`: one Check for each thing it examined.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dynprof {

enum class CheckState : std::uint8_t {
  kOk,
  kDegraded,  // a recording works, without what `consequence` says
  kMissing,   // no recording works
  kUnknown,   // it could not be probed: `finding` says why
};

struct Check {
  std::string name;  // stable: scripts look for it
  CheckState state = CheckState::kOk;
  std::string finding;  // what was probed, and how it came out
  std::string consequence;
  std::string fix;  // one command or setting; "" where nothing is wrong, or nothing helps
};

struct CheckGroup {
  std::string name;  // "kernel", "machine", "process"
  std::vector<Check> checks;
};

struct Diagnosis {
  std::string system;    // "Linux 6.1.0 on x86_64"
  std::int32_t pid = 0;  // 0: no process was asked about
  std::vector<CheckGroup> groups;
};

// "ok", "degraded", "missing", "unknown".
const char* state_text(CheckState state);

// How well a recording would work: kOk (fully), kDegraded or kMissing. An unknown check does not make
// it worse: the missing right that prevented the probe does.
CheckState verdict(const Diagnosis& diagnosis);

}  // namespace dynprof
