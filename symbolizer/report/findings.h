// What a recording says about the questions that the summary answers: where compile time went, what
// recompiled and why, which lines broke the graph, what the caches had, and who else had the CPUs.
// A fact the recording does not have is 0, empty or false, and is not shown.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/attribution/phase_groups.h"
#include "symbolizer/attribution/torch_history.h"
#include "symbolizer/report/cpu_use.h"
#include "symbolizer/report/gpu_verdict.h"
#include "symbolizer/report/sections.h"
#include "symbolizer/report/still_open.h"

namespace dynprof {

// Of one function in one process. Texts are the target's, not escaped.
struct Recompiles {
  std::int32_t pid = 0;
  std::string place;  // "Block.forward model.py:7"
  std::vector<CompileIndex> compiles{};
  std::vector<std::string> reasons{};  // one of each compile, all of torch's words
  std::uint64_t cost_ns = 0;           // wall time of these compiles and their backwards
  std::string limit{};                 // why torch recompiles it no more; "": it does
  bool limit_is_error = false;         // ... and then raised an error instead of running it eagerly
};

struct BreakPlace {
  std::string file;  // "": not known
  std::int32_t line = 0;
  std::string reason;  // as break_reason() has it
  std::string text;    // all of it
  std::uint64_t count = 0;
  CompileIndex compile = kNoCompile;  // the first; none: not known
  bool intended = false;              // DDPOptimizer's
};

struct Failure {
  CompileIndex compile = kNoCompile;
  std::string text;
};

struct Findings {
  std::uint64_t recorded_ns = 0;
  // Compiles that were not over before. `compiling_ns`: some thread compiled. `thread_ns`: their wall
  // times together, nested ones counted once.
  std::size_t compiles = 0, functions = 0, processes = 0;
  std::uint64_t compiling_ns = 0, thread_ns = 0;
  std::size_t open_at_start = 0, open_at_end = 0;
  std::size_t before = 0;  // over before the recording began
  std::uint64_t before_ns = 0;

  GroupTimes groups;            // of wall time where that is known, else of CPU time
  bool groups_are_cpu = false;  // wall time is known of none
  NamedTimes waits;             // of compiles, by what for; most first
  std::uint64_t wait_ns = 0;
  std::uint64_t scheduled_ns = 0, runnable_ns = 0;  // wall of compiles whose switches are known
  std::vector<std::pair<std::int32_t, std::uint64_t>> lock_waits;  // tid: for the compile lock

  // Wall time of compiles while children ran whose results are kept in a cache, by purpose; most first.
  std::uint64_t one_off_ns = 0;
  NamedTimes one_off;

  std::vector<CompileIndex> longest;  // at most three
  std::vector<Recompiles> recompiles;
  std::vector<BreakPlace> breaks;
  std::vector<Failure> failures;  // other than the recompile limit
  bool caches_known = false;
  PastCaches caches;

  // Kernels that Triton compiled or tuned outside of torch's compiles; the first is that with the longest stall.
  std::size_t triton_kernels = 0;
  std::uint64_t triton_ns = 0;
  std::string triton_first;  // "add_kernel at serve.py:42"

  GpuVerdict gpu;
  CpuUse cpu;
  std::vector<StillOpen> open;  // at the end; the oldest first
};

Findings find(const Selection& selection);

// The answers in at most eleven lines. True: something did not fit, and append_details() has it.
bool append_summary(std::string& out, const Selection& selection, const Findings& findings);
void append_details(std::string& out, const Selection& selection, const Findings& findings);

// "Block.forward model.py:7", "": not known.
std::string function_place(const Attribution& attribution, CompileIndex compile);

// torch's reason for a graph break without its hints: the kind, and the explanation if it has one.
std::string break_reason(std::string_view text);

// The size mismatches in a text of torch's: "tensor 'x' size mismatch at index 1. expected 4, actual 8".
struct SizeMismatch {
  std::string tensor;
  std::uint32_t dimension = 0;
  std::string expected, actual;
};
// The first in `reason`; false: there is none.
bool find_size_mismatch(const std::string& reason, SizeMismatch& found);

}  // namespace dynprof
