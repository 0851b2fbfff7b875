// Which functions of torch mark which phase, as data, and what a stack says by its frames' names
// alone. Only functions that stay on the frame chain while their work runs can be markers:
// generators and context managers (dynamo_timed, compile_context) do not.
#pragma once

#include <cstdint>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

// What a marker function says about the frames above it.
enum class FrameRole : std::uint8_t {
  kNone,
  kPhase,          // inside this phase
  kCompileEntry,   // `_compile`: a forward compile, its id in a local
  kAttemptEntry,   // `compile_frame`: an attempt; without `_compile` below it, an id we cannot see
  kBackwardEntry,  // a lazy backward compile, its id in a local
  kRun,            // calls compiled code: a backward entry below it has finished compiling
};

struct FrameRule {
  const char* file;      // end of co_filename, whole components
  const char* qualname;  // co_qualname; CPython 3.10 has none: its last component and the file
  FrameRole role;
  Phase phase;
};

// All rules, for tests.
const std::vector<FrameRule>& frame_rules();

// What a stack's names say, its leaf included. Of nested compiles the innermost counts: at most one
// of compile_entry and backward_entry is set.
struct StackPhase {
  Phase phase = Phase::kRuntime;  // innermost phase marker; kRuntime: none
  bool compile_entry = false;     // inside a `_compile` frame
  bool attempt_entry = false;     // inside a `compile_frame` frame
  bool backward_entry = false;    // inside a backward entry that has not run its result yet
  bool backward_work = false;     // ... and in a phase above it: it does compile
  bool backward_ran = false;      // inside a backward entry that runs its result
  bool begins_compile = false;    // this node itself is a compile or backward entry
};

// Per stack of the tables, in one pass over them.
std::vector<StackPhase> classify_stacks(const Tables& tables);

}  // namespace dynprof
