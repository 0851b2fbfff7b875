// What each sample was for: the compile (trace id, kind, attempt) and phase. A sample that no source
// covers is "runtime" when no compile is open on its thread, "unattributed" when a compile's marker
// is on its stack but could not be read; never guessed (docs/concepts/attribution.md).
//
// More than 15 public members (Attribution): it is what all reports and exports read of a recording.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/attribution/compile.h"
#include "symbolizer/attribution/resolved.h"
#include "symbolizer/recording/reader.h"

namespace dynprof {

// The few words users know; torch's own phase names map onto them (phases.cpp).
enum class Phase : std::uint8_t {
  kRuntime,
  kUnattributed,
  kDynamo,
  kGuards,
  kAotAutograd,
  kInductor,
  kKernelCompile,
  kWait,
  kCache,
  kAutotune,
  kCudagraphs,
  kBackend,
  kCount
};
const char* phase_text(Phase phase);

// How the compile was found. T: torch's thread-locals. F: locals of marker frames. E: the sample lies
// between two exact events of its thread.
enum class Origin : std::uint8_t { kNone, kFrames, kThreadLocals, kExact };

// Samples in which T and F both named a compile, and those of them in which they named different
// ones (or different attempts): torch has changed, or we read it wrong.
struct Agreement {
  std::uint64_t both = 0;
  std::uint64_t differ = 0;
};

// With a compile, `phase` is one of its phases. Without one it is kRuntime, kUnattributed, or the
// phase of compile work on a thread that has no id of its own (pool threads, compile workers).
struct AttributedSample {
  Sample sample;
  CompileIndex compile = kNoCompile;
  Phase phase = Phase::kRuntime;
  Origin origin = Origin::kNone;
  std::uint64_t cpu_ns = 0;  // what it stands for: sample_times.h
};

struct ExactCompile;
class ExactCompiles;
struct PastBreak;
struct PastCompile;
class Spans;
class ThreadClocks;
struct TorchHistory;

// The function a compile is of; all empty if that is not known.
struct CompiledFunction {
  std::string_view name{};      // co_name
  std::string_view qualname{};  // to show; "<stale code>" and such if `unreadable`
  std::string_view file{};
  std::int32_t line = 0;
  Unreadable unreadable = Unreadable::kNo;
};

class Attribution {
 public:
  explicit Attribution(const Recording& recording);
  ~Attribution();

  const Recording& recording() const;
  const ResolvedFrames& frames() const;
  // In the order they began, as far as that is known; else of their first sample.
  const std::vector<Compile>& compiles() const;
  CompiledFunction function(CompileIndex compile) const;
  // What the edges tell of it; null: nothing.
  const ExactCompile* timing(CompileIndex compile) const;
  // What torch remembers of it; null: nothing.
  const PastCompile* past(CompileIndex compile) const;
  // From edges, else from torch's history; null: not known whether there were any.
  const std::vector<PastBreak>* graph_breaks(CompileIndex compile) const;
  bool is_last_attempt(CompileIndex compile) const;
  // "_compile_inner_0_0", "compile_backward_1_0_1", "pid77-_compile_inner_0_0.2": design §2. Safe
  // as a file name; no two compiles share one.
  std::string file_stem(CompileIndex compile) const;
  // "0/0", "0/1_1", "backward 0/0", "0/0.2", "pid 77 0/0", "rank 1 0/0": for tables and titles.
  std::string label(CompileIndex compile) const;
  // The same without the process, for a table that has a column of it.
  std::string label_in_process(CompileIndex compile) const;
  // Every sample is in a compile, unattributed, runtime, or detached.
  std::uint64_t attributed() const;
  std::uint64_t unattributed() const;
  std::uint64_t runtime() const;
  std::uint64_t detached() const;  // compile work without an id: pool threads, compile workers
  const Agreement& agreement() const;
  const Spans& spans() const;
  const ThreadClocks& clocks() const;
  const ExactCompiles& exact() const;
  const TorchHistory& history() const;
  // "rank 1", "pid 77"; "" for the main process.
  std::string process_text(std::int32_t pid) const;
  // RANK of each process that compiles, where these are ranks of one job; else empty.
  const std::map<std::int32_t, std::string>& ranks() const;
  // Names without a process are of this one.
  std::int32_t main_pid() const;
  const std::vector<GeneratedCopy>& generated_copies() const;
  // Whether the leaf of `stack` is the function of torch that a compile's own profile begins with.
  bool begins_compile(StackId stack) const;

  // Same order as Recording::for_each_sample; may be called again, gives the same answers.
  void for_each(const std::function<void(const AttributedSample&)>& visit) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dynprof
