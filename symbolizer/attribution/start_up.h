// What a process did from its begin until its first step without a compile, by its main thread: imports, weights,
// compiles ... For processes whose begin was recorded (`record -- CMD`, and children). From samples and waits, by a
// table of rules over the frames of their stacks; docs/howto/slow-start.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/resolved.h"
#include "symbolizer/attribution/waits.h"

namespace dynprof {

enum class StartUpPart : std::uint8_t {
  kUnknown,  // neither a sample nor a wait tells
  kCudaGraphs,
  kTriton,
  kCompile,
  kCudaContext,
  kWeights,
  kImports,
  kFirstStep,  // from the last compile to the second run of a region without one
  kOther,      // anything else: the program's own code
  kCount,
};
inline constexpr std::size_t kStartUpParts = static_cast<std::size_t>(StartUpPart::kCount);
const char* start_up_text(StartUpPart part);  // "imports", ...

struct StartUpRule {
  StartUpPart part;
  FrameKind kind;
  // Python: the end of the path; native: the begin of the object's name; "" for any.
  const char* file;
  const char* function;  // "" for any; a native symbol begins with it
};
// The first that holds for any frame of a stack decides.
std::span<const StartUpRule> start_up_rules();
// By StackId: kOther where no rule holds.
std::vector<StartUpPart> start_up_parts(const Tables& tables, const ResolvedFrames& frames);

struct StartUpSlice {
  std::uint64_t begin_ns = 0, end_ns = 0;
  StartUpPart part = StartUpPart::kUnknown;
};

struct StartUp {
  std::int32_t pid = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;
  // False: it ends with the last compile, or with the recording where there is none.
  bool first_step_seen = false;
  std::vector<StartUpSlice> slices;               // one after the other, without gaps
  std::array<std::uint64_t, kStartUpParts> ns{};  // of the slices, before short ones were joined
  std::uint64_t of(StartUpPart part) const { return ns[static_cast<std::size_t>(part)]; }
};

// At most kMaxStartUps of them: of processes that compile, in the order of their first compile; of the target if none
// compiles.
inline constexpr std::size_t kMaxStartUps = 4;
std::vector<StartUp> find_start_ups(const Attribution& attribution, const Waits& waits);

}  // namespace dynprof
