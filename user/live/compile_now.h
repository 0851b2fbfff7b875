// What a thread compiles at this moment: which id and attempt, for how long, and which phases are open.
//
// Ids, attempt and phases are torch's thread-locals (user/target/torch_threads.h); where they name no
// compile, the locals of its marker frames (user/target/marker_rules.h) do.
//
// How long is torch's own start of the compile, epoch nanoseconds. MetricsContext._start_time_ns is
// set by the outermost compile of a thread only (_level counts them), and there is one such object per
// thread from torch 2.13 on and one per process before. So it is used at level 1, the local
// start_time_ns of the innermost `_compile` frame else; compiled autograd's capture has an attribute
// of its own. It is not known for a backward that is compiled inside another compile.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "user/live/target_view.h"
#include "user/target/torch_layout.h"
#include "user/target/torch_threads.h"

namespace dynprof {

struct CompileNow {
  TraceId id;                 // not valid: phases are open that belong to no compile of this thread
  std::int32_t attempt = -1;  // -1: not known
  std::optional<CompileKind> kind;
  std::optional<double> seconds;    // since it began
  std::vector<std::string> phases;  // torch's names, outermost first
  std::optional<Phase> phase;       // the innermost in our words
};

// torch's reported state of a thread at one moment.
struct TorchMoment {
  bool torn = false;
  TraceId id;
  std::int32_t attempt = -1;
  std::vector<std::string> phases;
  std::int64_t level = -1;     // of the metrics context; -1: not known
  std::int64_t start_ns = -1;  // of its outermost compile
  bool compiling() const { return torn || is_valid(id) || !phases.empty(); }
  bool operator==(const TorchMoment&) const = default;
};

// The same without phases and times.
struct TorchOpenCompile {
  bool torn = false;
  bool in_phase = false;
  TraceId id;
  std::int32_t attempt = -1;
  bool compiling() const { return torn || in_phase || is_valid(id); }
};

class TorchReader {
 public:
  explicit TorchReader(TargetView& view);

  bool imported() const { return torch_.has_value(); }
  // Both thread-locals are there; the second is made by the first compile.
  bool complete() const { return locals_.complete(); }
  const TorchTarget* torch() const { return torch_ ? &*torch_ : nullptr; }

  TorchMoment read(std::uint64_t tstate);
  // Some ten reads where read() takes a hundred. Where a thread keeps its state is remembered, and checked each
  // time as the kernel side checks it.
  TorchOpenCompile read_open(pid_t tid, std::uint64_t tstate);
  // nullopt: neither torch nor the stack knows of a compile. `now_ns` is the epoch time of `moment`.
  std::optional<CompileNow> describe(const TorchMoment& moment, const RemoteStack& stack,
                                     std::int64_t now_ns);

 private:
  dp_torch_thread find(std::uint64_t tstate);
  void read_ids(std::uint64_t context, TraceId& id, std::int32_t& attempt, bool& torn);
  void read_metrics(std::uint64_t context, TorchMoment& moment);
  void from_frames(const RemoteStack& stack, CompileNow& compile);
  TraceId id_of(std::uint64_t compile_id);
  std::optional<std::int64_t> start_of(const TorchMoment& moment, const CompileNow& compile,
                                       const RemoteStack& stack);
  std::optional<std::int64_t> int_attribute(std::uint64_t object, std::string_view name);

  TargetView& view_;
  std::optional<TorchTarget> torch_;
  dp_torch_layout layout_{};
  TorchLocals locals_;
  std::map<std::pair<pid_t, std::uint64_t>, dp_torch_thread> places_;  // of read_open()
  std::uint64_t metrics_local_ = 0;   // threading.local of torch 2.13 and later
  std::uint64_t metrics_shared_ = 0;  // the MetricsContext of a process before that
};

}  // namespace dynprof
