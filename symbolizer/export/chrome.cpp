#include "symbolizer/export/chrome.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "symbolizer/export/exact_trace.h"
#include "symbolizer/export/gpu_trace.h"
#include "symbolizer/export/process_trace.h"
#include "symbolizer/export/select.h"
#include "symbolizer/export/trace_file.h"
#include "symbolizer/profile/timeline.h"

namespace dynprof {
namespace {

// What samples tell of one thread in one file: its stacks, and compiles no edges tell of.
struct DrawnRow {
  DrawnRow(TraceShared& shared, std::size_t number, const ExactTrace& exact_part, TraceFile& to)
      : row(number),
        exact(exact_part),
        file(to),
        compiles(shared.attribution.compiles()),
        frames(shared.index, shared.period_ns),
        spans(compiles, shared.period_ns),
        emit_frame([this, &drawn = shared.rows[number]](const FrameSlice& slice) {
          file.frame(drawn, slice);
        }),
        emit_span([this, &drawn = shared.rows[number]](const SpanSlice& slice) {
          exact.draws_on(row) ? beside.push_back(slice) : file.span(drawn, slice);
        }) {}
  DrawnRow(const DrawnRow&) = delete;
  DrawnRow& operator=(const DrawnRow&) = delete;

  void add(const AttributedSample& at, std::uint32_t skip, bool root_missing) {
    bool is_exact = at.compile != kNoCompile && compiles[at.compile].timing != kNoIndex;
    spans.add(at.sample.time_ns, is_exact ? kNoCompile : at.compile, at.phase, emit_span);
    frames.add(at.sample.time_ns, at.sample.stack, skip, root_missing, emit_frame);
  }
  void wait(const Wait& wait, std::uint32_t skip, bool root_missing, const TraceRow& drawn) {
    const bool preempted = wait.kind == WaitKind::kPreempted;
    std::uint64_t begin = frames.wait(wait.begin_ns, wait.end_ns(), wait.stack, skip, root_missing,
                                      preempted, emit_frame);
    file.wait(drawn, begin, wait);
  }
  void close() {
    spans.close(emit_span);
    frames.close(emit_frame);
    exact.write_beside(file, row, std::move(beside));
  }

  std::size_t row;
  const ExactTrace& exact;
  TraceFile& file;
  const std::vector<Compile>& compiles;
  std::vector<SpanSlice> beside;  // on a row that edges tell of too
  FrameRow frames;
  SpanRow spans;
  FrameRow::Emit emit_frame;
  SpanRow::Emit emit_span;
};

class Trace {
 public:
  Trace(TraceShared& shared, const std::vector<CompileIndex>& compiles,
        std::unique_ptr<ByteSink> sink)
      : shared_(shared),
        whole_(compiles.empty()),
        compiles_(compiles),
        next_wait_(shared.rows.size(), 0),
        exact_(shared, compiles),
        file_(shared, std::move(sink)) {
    std::vector<bool> wanted(shared.rows.size(), whole_);
    for (CompileIndex compile : compiles) {
      ThreadId thread = shared.attribution.compiles()[compile].thread;
      if (thread != kNoThread) wanted[shared.row_of_thread[thread]] = true;
    }
    std::vector<TraceRow> rows;
    drawn_.resize(shared.rows.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) continue;
      rows.push_back(shared.rows[i]);
      drawn_[i] = std::make_unique<DrawnRow>(shared, i, exact_, file_);
    }
    file_.begin(rows);
    if (whole_) write_gpu_rows(shared, file_);
    if (whole_) write_process_rows(shared, file_);
  }

  void add(const AttributedSample& at) {
    const std::size_t number = shared_.row_of_thread[at.sample.thread];
    DrawnRow* row = drawn_[number].get();
    if (row == nullptr) return;  // a compile's samples are all of its own thread
    draw_waits(number, at.sample.time_ns);
    if (whole_) return row->add(at, 0, root_missing(at.sample));
    // From the compile's first frame on; if that is not seen, the whole stack.
    std::uint32_t before = shared_.frames_before_compile[at.sample.stack];
    row->add(at, before, before == 0 && root_missing(at.sample));
  }

  Result<void> finish() {
    for (std::size_t i = 0; i < drawn_.size(); ++i) {
      if (!drawn_[i]) continue;
      draw_waits(i, std::numeric_limits<std::uint64_t>::max());
      drawn_[i]->close();
    }
    exact_.write(file_);
    if (whole_) write_gpu_slices(shared_, file_);
    if (whole_) write_process_slices(shared_, file_);
    return file_.finish();
  }

 private:
  // Those that began before a sample of the thread, which comes next.
  void draw_waits(std::size_t number, std::uint64_t until_ns) {
    const std::vector<std::uint32_t>& waits = shared_.waits_of_row[number];
    for (std::size_t& next = next_wait_[number]; next < waits.size(); ++next) {
      const Wait& wait = shared_.tables.waits[waits[next]];
      if (wait.begin_ns > until_ns) return;
      const bool root_missing = (wait.flags & kWaitRootMissing) != 0;
      if (whole_) {
        drawn_[number]->wait(wait, 0, root_missing, shared_.rows[number]);
        continue;
      }
      const CompileIndex owner = shared_.waits.owner(waits[next]).compile;
      if (std::find(compiles_.begin(), compiles_.end(), owner) == compiles_.end()) continue;
      const std::uint32_t before = shared_.frames_before_compile[wait.stack];
      drawn_[number]->wait(wait, before, before == 0 && root_missing, shared_.rows[number]);
    }
  }

  TraceShared& shared_;
  bool whole_;
  std::vector<CompileIndex> compiles_;
  std::vector<std::size_t> next_wait_;
  ExactTrace exact_;
  TraceFile file_;
  std::vector<std::unique_ptr<DrawnRow>> drawn_;  // by row, null: not in this file
};

class Traces {
 public:
  Traces(const Attribution& attribution, std::vector<TraceTarget> targets) : shared_(attribution) {
    slot_of_compile_.resize(attribution.compiles().size(), kNone);
    slots_.reserve(targets.size());
    for (TraceTarget& target : targets) {
      Slot slot;
      for (CompileIndex compile : target.compiles) {
        DYNPROF_CHECK(compile < slot_of_compile_.size());
        slot_of_compile_[compile] = slots_.size();
        slot.left += attribution.compiles()[compile].samples;
      }
      slot.target = std::move(target);
      slots_.push_back(std::move(slot));
      if (slots_.back().target.compiles.empty()) whole_.push_back(slots_.size() - 1);
    }
  }

  void add(const AttributedSample& at) {
    for (std::size_t slot : whole_) add(slots_[slot], at);
    if (at.compile == kNoCompile || slot_of_compile_[at.compile] == kNone) return;
    Slot& slot = slots_[slot_of_compile_[at.compile]];
    add(slot, at);
    if (slot.left > 0 && --slot.left == 0) finish(slot);
  }

  Result<void> finish() {
    for (Slot& slot : slots_) {
      if (!slot.done && !slot.trace) start(slot);  // no sample: a file without slices
      finish(slot);
    }
    if (error_) return *error_;
    return {};
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Slot {
    TraceTarget target;
    std::uint64_t left = 0;  // samples to come, of a target with compiles
    bool done = false;       // or failed
    std::unique_ptr<Trace> trace;
  };

  void add(Slot& slot, const AttributedSample& at) {
    if (!slot.trace && !slot.done) start(slot);
    if (slot.trace) slot.trace->add(at);
  }
  void start(Slot& slot) {
    auto sink = slot.target.open();
    if (sink) {
      slot.trace = std::make_unique<Trace>(shared_, slot.target.compiles, std::move(sink).value());
    } else {
      slot.done = true;
      keep_error(std::move(sink).error());
    }
  }
  void finish(Slot& slot) {
    slot.done = true;
    if (!slot.trace) return;
    if (auto finished = slot.trace->finish(); !finished) keep_error(std::move(finished).error());
    slot.trace.reset();
  }
  void keep_error(Error error) {
    if (!error_) error_ = std::move(error);
  }

  TraceShared shared_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> whole_;            // slots that take every sample
  std::vector<std::size_t> slot_of_compile_;  // by CompileIndex
  std::optional<Error> error_;
};

}  // namespace

Result<void> write_chrome_traces(const Attribution& attribution, std::vector<TraceTarget> targets) {
  Traces traces(attribution, std::move(targets));
  attribution.for_each([&](const AttributedSample& at) { traces.add(at); });
  return traces.finish();
}

Result<void> write_chrome_trace(const Attribution& attribution, std::vector<CompileIndex> compiles,
                                std::unique_ptr<ByteSink> sink) {
  std::vector<TraceTarget> targets(1);
  targets[0].compiles = std::move(compiles);
  targets[0].open = [&]() -> Result<std::unique_ptr<ByteSink>> { return std::move(sink); };
  return write_chrome_traces(attribution, std::move(targets));
}

}  // namespace dynprof
