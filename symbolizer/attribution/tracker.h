// Sources T and F: from torch's thread-locals and the markers on each sample's stack to compiles.
// Follows every thread's open compiles from sample to sample; an episode is one compile (one call of
// a marker function), from the first sample that shows it to the last. T decides where it speaks:
// it says which compile is innermost, and covers those that have no marker. F decides elsewhere,
// and tells two compiles of one id apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "symbolizer/attribution/compile.h"
#include "symbolizer/attribution/phases.h"
#include "symbolizer/attribution/torch_states.h"
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
  Origin origin = Origin::kNone;  // of a compile
  // Set by the sample that decides the thread's pending ones: whether a compile was open across
  // them (they are then unattributed) or not.
  std::optional<bool> settles{};
  // The call of `compile_frame` on the stack that no `_compile` is below (torch.export), 0: none. The
  // samples without a compile in a call belong to the compile that a later one names for it.
  std::uint64_t call = 0;
};

class CompileTracker {
 public:
  CompileTracker(const Tables& tables, const std::vector<TorchReading>& torch);

  // Samples of one thread must come in time order.
  Decision add(const Sample& sample, const StackPhase& stack);
  // At the end of the recording: marks what is still open and gives the compiles away.
  std::vector<Compile> finish();
  const Agreement& agreement() const { return agreement_; }
  // A thread that changed its name is several entries of the tables: one index for all of them.
  std::size_t row(ThreadId thread) const { return rows_[thread]; }
  std::size_t row_count() const { return threads_.size(); }

 private:
  struct Episode {
    std::uint64_t instance = 0;
    TraceId id;
    CompileKind kind = CompileKind::kForward;
    bool began_before = false;
    CodeId user_code = 0;
    std::uint32_t number = 0;  // of the episode, over all threads
    // Found by T; F may join it later, then it has an instance. Where its phase stands in T's list.
    bool from_torch = false;
    // ... by its id alone: a phase that opens later shows the kind.
    bool kind_guessed = false;
    StringId root_name = 0;
    std::int32_t root_depth = -1;
    std::int32_t attempt = 0;           // the last one seen
    CompileIndex current = kNoCompile;  // the compile of that attempt
    std::vector<std::pair<std::int32_t, CompileIndex>> attempts;
    bool is(const Marker& marker, const TraceId& marker_id, CompileKind marker_kind) const {
      return instance == marker.instance && id == marker_id && kind == marker_kind;
    }
    bool awaits_frames() const { return from_torch && instance == 0; }
  };
  // What the frames of a sample where T speaks too say of it.
  struct FramesWord {
    bool id_known = false;
    bool backward = false;
    bool differs = false;
  };
  struct ThreadState {
    bool seen = false;          // a sample with Python frames came before
    bool pending = false;       // samples without Python came since the last one with
    std::vector<Episode> open;  // root first
    // Most samples repeat their thread's last context: then only names need a look.
    bool repeatable = false;
    ContextId last_context = 0;
    FramesWord frames;       // of the last sample where T spoke
    std::uint64_t call = 0;  // of the last sample
  };
  // What the markers of one sample say; episodes are found by place in `now`.
  struct Reading {
    std::vector<Episode> now;
    int inner = -1;             // innermost compile, -1: none
    std::int32_t attempt = -1;  // of it, if a marker says
    std::uint64_t call = 0;     // as in Decision
    bool unknown = false;       // the innermost one could not be read
    bool lasting = true;        // the same for each stack with this context
    bool shows(const Episode& episode) const {
      return std::any_of(now.begin(), now.end(),
                         [&](const Episode& other) { return other.number == episode.number; });
    }
  };

  Reading read_markers(ThreadState& thread, const Sample& sample, const StackPhase& stack);
  int enter(ThreadState& thread, Reading& reading, const Sample& sample, const Marker& marker,
            const TraceId& id, CompileKind kind);
  void keep_open(ThreadState& thread, Reading& reading, const Marker* only_of);
  // T's part.
  void listen(ThreadState& thread, Reading& reading, const Sample& sample, const StackPhase& stack,
              const TorchReading& torch);
  void enter_by_torch(ThreadState& thread, Reading& reading, const Sample& sample,
                      const StackPhase& stack, const TorchReading& torch);
  void set_kind(Episode& episode, CompileKind kind);
  void keep_around(ThreadState& thread, Reading& reading, const Sample& sample,
                   const StackPhase& stack, const TorchReading& torch);
  void compare(const FramesWord& frames, const StackPhase& stack);
  Episode new_episode(const ThreadState& thread, const Sample& sample, const TraceId& id,
                      CompileKind kind);
  bool is_inherited(const ThreadState& thread, const Sample& sample, const StackPhase& stack) const;
  Decision decide(ThreadState& thread, int inner, const StackPhase& stack,
                  const TorchReading& torch);
  void touch(Episode& episode, const Sample& sample);
  CompileIndex add_compile(const Episode& episode, const Sample& sample, std::int32_t attempt);

  const Tables& tables_;
  std::vector<TorchReading> torch_;  // by ContextId
  Agreement agreement_;
  std::uint32_t episodes_ = 0;
  std::vector<std::size_t> rows_;                                     // by ThreadId
  std::vector<ThreadState> threads_;                                  // by row
  std::map<std::int32_t, std::int32_t> parents_;                      // pid -> who forked it
  std::map<std::int32_t, std::vector<std::size_t>> rows_of_process_;  // pid -> of threads_
  std::map<std::int32_t, bool> began_with_us_;  // by pid: first seen after we attached
  std::set<std::tuple<std::int32_t, CompileKind, TraceId>> seen_;  // pid, ...
  std::vector<Compile> compiles_;
};

}  // namespace dynprof
