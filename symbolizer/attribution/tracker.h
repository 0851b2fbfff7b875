// Source F: from the markers on each sample's stack to compiles. Follows every thread's open
// compiles from sample to sample; an episode is one call of a marker function, from the first
// sample that shows it to the last.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "symbolizer/attribution/compile.h"
#include "symbolizer/attribution/phases.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

// What one sample says about its compile.
enum class Verdict : std::uint8_t {
  kNone,          // no compile on the stack
  kCompile,       // inside `Decision::compile`
  kUnattributed,  // inside a compile whose id could not be read
  kPending,       // shows no Python: decided by the thread's next sample that does
};

struct Decision {
  Verdict verdict = Verdict::kNone;
  CompileIndex compile = kNoCompile;
  // Set by the sample that decides the thread's pending ones: whether a compile was open across
  // them (they are then unattributed) or not.
  std::optional<bool> settles;
};

class CompileTracker {
 public:
  explicit CompileTracker(const Tables& tables);

  // Samples of one thread must come in time order.
  Decision add(const Sample& sample, const StackPhase& stack);
  // At the end of the recording: marks what is still open, completes user functions, and returns
  // the compiles in order of first sample; `renumbered[old index]` is the new one.
  std::vector<Compile> finish(std::vector<CompileIndex>& renumbered);
  // A thread that changed its name is several entries of the tables: one index for all of them.
  std::size_t row(ThreadId thread) const { return rows_[thread]; }
  std::size_t row_count() const { return threads_.size(); }

 private:
  struct Episode {
    std::uint64_t instance = 0;
    TraceId id;
    CompileKind kind = CompileKind::kForward;
    std::uint32_t repeat = 1;
    bool began_before = false;
    CodeId user_code = 0;
    std::int32_t attempt = 0;           // the last one seen
    CompileIndex current = kNoCompile;  // the compile of that attempt
    std::vector<std::pair<std::int32_t, CompileIndex>> attempts;
    bool is(const Marker& marker, const TraceId& marker_id, CompileKind marker_kind) const {
      return instance == marker.instance && id == marker_id && kind == marker_kind;
    }
  };
  struct ThreadState {
    bool seen = false;          // a sample with Python frames came before
    bool pending = false;       // samples without Python came since the last one with
    std::vector<Episode> open;  // root first
    // Most samples repeat their thread's last context: then only names need a look.
    bool repeatable = false;
    ContextId last_context = 0;
  };
  // What the markers of one sample say; episodes are found by place in `now`.
  struct Reading {
    std::vector<Episode> now;
    int inner = -1;        // innermost compile, -1: none
    bool unknown = false;  // the innermost one could not be read
    bool lasting = true;   // the same for each stack with this context
  };

  Reading read_markers(ThreadState& thread, const Sample& sample, const StackPhase& stack);
  int enter(ThreadState& thread, Reading& reading, const Sample& sample, const Marker& marker,
            const TraceId& id, CompileKind kind);
  void keep_open(ThreadState& thread, Reading& reading, const Marker* only_of);
  bool is_inherited(const Sample& sample) const;
  Decision decide(ThreadState& thread, int inner, const StackPhase& stack);
  void touch(Episode& episode, const Sample& sample);
  CompileIndex add_compile(const Episode& episode, const Sample& sample, std::int32_t attempt);

  const Tables& tables_;
  std::vector<std::size_t> rows_;                                     // by ThreadId
  std::vector<ThreadState> threads_;                                  // by row
  std::map<std::int32_t, std::int32_t> parents_;                      // pid -> who forked it
  std::map<std::int32_t, std::vector<std::size_t>> rows_of_process_;  // pid -> of threads_
  std::map<std::int32_t, bool> began_with_us_;  // by pid: first seen after we attached
  std::map<std::tuple<std::int32_t, CompileKind, TraceId>, std::uint32_t> repeats_;  // pid, ...
  std::vector<Compile> compiles_;
  std::vector<std::uint64_t> noticed_ns_;  // when each of compiles_ was found: their order
};

}  // namespace dynprof
