#include "symbolizer/attribution/compile_progress.h"

#include <algorithm>

namespace dynprof {
namespace {

constexpr std::uint64_t kNever = UINT64_MAX;
constexpr std::size_t kMaxRows = 4096;  // each is compared with all compiles

// How far a moment is from a compile's time. One of its ends may not be known.
std::uint64_t distance(const Compile& compile, std::uint64_t time_ns) {
  const std::uint64_t first_ns = compile.began_before ? 0 : compile.first_ns;
  const std::uint64_t last_ns = compile.open_at_end ? kNever : compile.last_ns;
  if (time_ns < first_ns) return first_ns - time_ns;
  return time_ns > last_ns ? time_ns - last_ns : 0;
}

class Joiner {
 public:
  Joiner(const Recording& recording, const std::vector<TorchReading>& torch,
         std::vector<Compile>& compiles)
      : tables_(recording.tables()),
        start_ns_(recording.meta().start_ns),
        end_ns_(recording.trailer().end_ns),
        torch_(torch),
        compiles_(compiles) {}

  void join() {
    const std::size_t rows = std::min(tables_.compile_progress.size(), kMaxRows);
    for (std::uint32_t i = 0; i < rows; ++i) {
      const CompileProgress& row = tables_.compile_progress[i];
      const TorchReading& reading = torch_[row.context];
      if (!reading.speaks) continue;
      Compile* compile = find(row, reading);
      if (compile == nullptr) compile = add(row, reading);
      if (compile == nullptr) continue;
      compile->progress = i;  // rows are in order of time
      if (at_end(row) && compile->timing == kNoIndex) {
        compile->open_at_end = true;
        compile->last_ns = std::max(compile->last_ns, end_ns_);
      }
      if (row.begun_ns == 0 || row.begun_ns >= start_ns_) continue;
      if (!compile->began_before && compile->attempt != 0) continue;  // an attempt that began later
      compile->began_before = true;
      compile->started_ns = row.begun_ns;
    }
  }

 private:
  bool at_end(const CompileProgress& row) const { return end_ns_ != 0 && row.time_ns >= end_ns_; }

  Compile* find(const CompileProgress& row, const TorchReading& reading) {
    const Thread& thread = tables_.threads[row.thread];
    Compile* best = nullptr;
    std::uint64_t least = kNever;
    for (Compile& compile : compiles_) {
      if (compile.thread == kNoThread || compile.before_attach || compile.id != reading.id)
        continue;
      const Thread& other = tables_.threads[compile.thread];
      if (other.pid != thread.pid || other.tid != thread.tid) continue;
      if (reading.kind && compile.kind != *reading.kind) continue;
      if (row.begun_ns > compile.last_ns && !compile.open_at_end) continue;  // the one after it
      const std::uint64_t gap = distance(compile, row.time_ns);
      // Of several attempts the last one that had begun.
      if (gap > least || (gap == least && best->attempt > compile.attempt)) continue;
      least = gap;
      best = &compile;
    }
    return best;
  }

  Compile* add(const CompileProgress& row, const TorchReading& reading) {
    // What is read at the end is of a little later: it may have begun after the recording.
    if (end_ns_ != 0 && row.begun_ns >= end_ns_) return nullptr;
    Compile compile;
    compile.id = reading.id;
    compile.attempt = std::max(reading.attempt, 0);
    compile.kind = reading.kind.value_or(CompileKind::kForward);
    compile.thread = row.thread;
    compile.pid = tables_.threads[row.thread].pid;
    compile.first_ns = std::max(row.begun_ns, start_ns_);
    compile.last_ns = std::max(row.time_ns, compile.first_ns);
    compile.noticed_ns = compile.first_ns;
    for (const Compile& other : compiles_)
      compile.episode = std::max(compile.episode, other.episode + 1);
    return &compiles_.emplace_back(compile);
  }

  const Tables& tables_;
  const std::uint64_t start_ns_, end_ns_;
  const std::vector<TorchReading>& torch_;
  std::vector<Compile>& compiles_;
};

}  // namespace

void join_progress(const Recording& recording, const std::vector<TorchReading>& torch,
                   std::vector<Compile>& compiles) {
  Joiner(recording, torch, compiles).join();
}

}  // namespace dynprof
