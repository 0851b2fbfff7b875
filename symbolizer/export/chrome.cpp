#include "symbolizer/export/chrome.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "symbolizer/export/annotation_trace.h"
#include "symbolizer/export/exact_trace.h"
#include "symbolizer/export/formats.h"
#include "symbolizer/export/gpu_trace.h"
#include "symbolizer/export/operator_trace.h"
#include "symbolizer/export/process_trace.h"
#include "symbolizer/export/select.h"
#include "symbolizer/export/trace_file.h"
#include "symbolizer/profile/timeline.h"

namespace dynprof {
namespace {

// What samples tell of one thread in one file: its stacks, and compiles no edges tell of.
struct DrawnRow {
  DrawnRow(TraceShared& shared, std::size_t number, const ExactTrace& exact_part, TraceFile& to,
           std::uint64_t grain, bool with_operators)
      : row(number),
        grain_ns(grain),
        drawn(shared.rows[number]),
        exact(exact_part),
        file(to),
        compiles(shared.attribution.compiles()),
        frames(shared.index, std::max(shared.period_ns, grain)),
        spans(compiles, std::max(shared.period_ns, grain)),
        emit_frame([this](const FrameSlice& slice) { file.frame(drawn, slice); }),
        emit_span([this](const SpanSlice& slice) {
          exact.draws_on(row) ? beside.push_back(slice) : file.span(drawn, slice);
        }) {
    if (with_operators) operators.emplace(shared, to, drawn, std::max(shared.period_ns, grain));
  }
  DrawnRow(const DrawnRow&) = delete;
  DrawnRow& operator=(const DrawnRow&) = delete;

  void add(const AttributedSample& at, std::uint32_t skip, bool root_missing) {
    if (grain_ns > 0) {
      const std::uint64_t grain = at.sample.time_ns / grain_ns;
      if (std::exchange(last_grain, grain) == grain) return;
      draw_short_waits();
    }
    bool is_exact = at.compile != kNoCompile && compiles[at.compile].timing != kNoIndex;
    spans.add(at.sample.time_ns, is_exact ? kNoCompile : at.compile, at.phase, emit_span);
    frames.add(at.sample.time_ns, at.sample.stack, skip, root_missing, emit_frame);
    if (operators) operators->add(at.sample.time_ns, at.sample.stack);
  }
  void wait(const Wait& wait, std::uint32_t skip, bool root_missing) {
    if (short_waits.add(wait, grain_ns)) return keep_stack(wait, skip, root_missing);
    draw_short_waits();
    if (short_waits.add(wait, grain_ns)) return keep_stack(wait, skip, root_missing);
    const std::uint64_t begin =
        frames.wait(wait.begin_ns, wait.end_ns(), wait.stack, skip, root_missing,
                    wait.kind == WaitKind::kPreempted, emit_frame);
    if (operators)
      operators->wait(wait.begin_ns, wait.end_ns(), wait.stack, wait.kind == WaitKind::kPreempted);
    file.wait(drawn, begin, wait);
  }
  void close() {
    draw_short_waits();
    spans.close(emit_span);
    frames.close(emit_frame);
    if (operators) operators->close();
    exact.write_beside(file, row, std::move(beside));
  }

  // Of the longest of the short waits.
  void keep_stack(const Wait& wait, std::uint32_t skip, bool root_missing) {
    if (!(short_waits.longest == wait)) return;
    short_skip = skip;
    short_root_missing = root_missing;
  }
  void draw_short_waits() {
    const MergedWaits waits = std::exchange(short_waits, {});
    if (waits.count == 0) return;
    const Wait& longest = waits.longest;
    const std::uint64_t begin =
        frames.wait(waits.begin_ns, waits.end_ns, longest.stack, short_skip, short_root_missing,
                    longest.kind == WaitKind::kPreempted, emit_frame);
    if (operators)
      operators->wait(waits.begin_ns, waits.end_ns, longest.stack,
                      longest.kind == WaitKind::kPreempted);
    waits.count == 1 ? file.wait(drawn, begin, longest) : file.waits(drawn, begin, waits);
  }

  std::size_t row;
  std::uint64_t grain_ns;
  std::uint64_t last_grain = std::numeric_limits<std::uint64_t>::max();
  MergedWaits short_waits;
  std::uint32_t short_skip = 0;
  bool short_root_missing = false;
  const TraceRow& drawn;
  const ExactTrace& exact;
  TraceFile& file;
  const std::vector<Compile>& compiles;
  std::vector<SpanSlice> beside;  // on a row that edges tell of too
  FrameRow frames;
  SpanRow spans;
  std::optional<OperatorSlices> operators;  // only in the trace of everything
  FrameRow::Emit emit_frame;
  SpanRow::Emit emit_span;
};

class Trace {
 public:
  Trace(TraceShared& shared, const std::vector<CompileIndex>& compiles,
        std::unique_ptr<ByteSink> sink, std::uint64_t grain_ns, const TraceWindow& window)
      : shared_(shared),
        whole_(compiles.empty()),
        one_process_(window.pid != 0),
        compiles_(compiles),
        next_wait_(shared.rows.size(), 0),
        exact_(shared, compiles),
        file_(shared, std::move(sink), grain_ns, window) {
    std::vector<bool> wanted(shared.rows.size(), whole_);
    for (CompileIndex compile : compiles) {
      ThreadId thread = shared.attribution.compiles()[compile].thread;
      if (thread != kNoThread) wanted[shared.row_of_thread[thread]] = true;
    }
    std::vector<TraceRow> rows;
    drawn_.resize(shared.rows.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i] || !file_.shows(shared.rows[i].pid)) continue;
      rows.push_back(shared.rows[i]);
      drawn_[i] = std::make_unique<DrawnRow>(shared, i, exact_, file_, grain_ns, whole_);
    }
    file_.begin(rows);
    if (whole_) write_operator_rows(shared, file_);
    if (whole_) write_gpu_rows(shared, file_);
    if (whole_ && !one_process_) write_process_rows(shared, file_);
  }

  void add(const AttributedSample& at) {
    const std::size_t number = shared_.row_of_thread[at.sample.thread];
    DrawnRow* row = drawn_[number].get();
    if (row == nullptr || file_.failed()) return;  // a compile's samples are all of its own thread
    draw_waits(number, at.sample.time_ns);
    if (whole_) return row->add(at, 0, root_missing(at.sample));
    // From the compile's first frame on; if that is not seen, the whole stack.
    std::uint32_t before = shared_.frames_before_compile[at.sample.stack];
    row->add(at, before, before == 0 && root_missing(at.sample));
  }

  Result<void> finish() {
    for (std::size_t i = 0; i < drawn_.size(); ++i) {
      if (!drawn_[i] || file_.failed()) continue;
      draw_waits(i, std::numeric_limits<std::uint64_t>::max());
      drawn_[i]->close();
    }
    if (!file_.failed()) exact_.write(file_);
    if (whole_ && !file_.failed()) write_annotations(shared_, file_);
    if (whole_ && !file_.failed()) write_gpu_slices(shared_, file_);
    if (whole_ && !one_process_ && !file_.failed()) write_process_slices(shared_, file_);
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
        drawn_[number]->wait(wait, 0, root_missing);
        continue;
      }
      const CompileIndex owner = shared_.waits.owner(waits[next]).compile;
      if (std::find(compiles_.begin(), compiles_.end(), owner) == compiles_.end()) continue;
      const std::uint32_t before = shared_.frames_before_compile[wait.stack];
      drawn_[number]->wait(wait, before, before == 0 && root_missing);
    }
  }

  TraceShared& shared_;
  bool whole_;
  bool one_process_;
  std::vector<CompileIndex> compiles_;
  std::vector<std::size_t> next_wait_;
  ExactTrace exact_;
  TraceFile file_;
  std::vector<std::unique_ptr<DrawnRow>> drawn_;  // by row, null: not in this file
};

// One pass over the samples for all targets.
class Traces {
 public:
  using Open = std::function<Result<std::unique_ptr<ByteSink>>()>;
  struct Planned {
    const TraceTarget& target;
    std::uint64_t grain_ns;
    Open open;
  };
  Traces(TraceShared& shared, std::vector<Planned> targets) : shared_(shared) {
    const Attribution& attribution = shared.attribution;
    slot_of_compile_.resize(attribution.compiles().size(), kNone);
    slots_.reserve(targets.size());
    for (Planned& planned : targets) {
      const TraceTarget& target = planned.target;
      Slot slot(std::move(planned));
      for (CompileIndex compile : target.compiles) {
        DYNPROF_CHECK(compile < slot_of_compile_.size());
        slot_of_compile_[compile] = slots_.size();
        slot.left += attribution.compiles()[compile].samples;
      }
      slots_.push_back(std::move(slot));
      if (target.compiles.empty()) whole_.push_back(slots_.size() - 1);
    }
  }

  void add(const AttributedSample& at) {
    for (std::size_t slot : whole_) add(slots_[slot], at);
    if (at.compile == kNoCompile || slot_of_compile_[at.compile] == kNone) return;
    Slot& slot = slots_[slot_of_compile_[at.compile]];
    add(slot, at);
    if (slot.left > 0 && --slot.left == 0) finish(slot);
  }

  Result<void> write() {
    shared_.attribution.for_each([&](const AttributedSample& at) { add(at); });
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
    explicit Slot(Planned from) : planned(std::move(from)) {}
    Planned planned;
    std::uint64_t left = 0;  // samples to come, of a target with compiles
    bool done = false;       // or failed
    std::unique_ptr<Trace> trace;
  };

  void add(Slot& slot, const AttributedSample& at) {
    if (!slot.trace && !slot.done) start(slot);
    if (slot.trace) slot.trace->add(at);
  }
  void start(Slot& slot) {
    auto sink = slot.planned.open();
    if (sink) {
      slot.trace =
          std::make_unique<Trace>(shared_, slot.planned.target.compiles, std::move(sink).value(),
                                  slot.planned.grain_ns, slot.planned.target.window);
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

  TraceShared& shared_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> whole_;            // slots that take every sample
  std::vector<std::size_t> slot_of_compile_;  // by CompileIndex
  std::optional<Error> error_;
};

struct Size {
  std::uint64_t grain_ns = kTraceGrains.back();
  std::uint64_t bytes = 0;  // with that grain
};

// The finest grain with which each of `left` is no larger than `limit`.
void choose_grains(TraceShared& shared, const std::vector<TraceTarget>& targets,
                   std::vector<std::size_t> left, std::uint64_t limit, std::vector<Size>& sizes) {
  for (std::uint64_t grain : kTraceGrains) {
    if (left.empty()) break;
    std::vector<Traces::Planned> planned;
    for (std::size_t i : left) {
      sizes[i] = {grain, 0};
      planned.push_back({targets[i], grain, [&, i]() -> Result<std::unique_ptr<ByteSink>> {
                           return std::unique_ptr<ByteSink>(
                               std::make_unique<CountingSink>(limit, sizes[i].bytes));
                         }});
    }
    if (grain == kTraceGrains.back()) break;           // there is no coarser one
    (void)Traces(shared, std::move(planned)).write();  // counting does not fail
    std::erase_if(left, [&](std::size_t i) { return sizes[i].bytes <= limit; });
  }
}

// The largest limit for each of these sizes with which they fit into `total` together.
std::uint64_t fair_limit(std::vector<std::uint64_t> sizes, std::uint64_t total) {
  std::sort(sizes.begin(), sizes.end());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::uint64_t share = total / (sizes.size() - i);
    if (sizes[i] > share) return share;
    total -= sizes[i];
  }
  return std::numeric_limits<std::uint64_t>::max();
}

std::vector<Size> choose_sizes(TraceShared& shared, const std::vector<TraceTarget>& targets,
                               std::uint64_t max_bytes) {
  std::vector<Size> sizes(targets.size());
  std::vector<std::size_t> all(targets.size()), too_large;
  std::iota(all.begin(), all.end(), 0);
  choose_grains(shared, targets, all, max_bytes, sizes);
  std::vector<std::uint64_t> of_compiles;
  for (std::size_t i : all)
    if (!targets[i].compiles.empty()) of_compiles.push_back(sizes[i].bytes);
  const std::uint64_t limit = fair_limit(std::move(of_compiles), max_bytes);
  for (std::size_t i : all)
    if (!targets[i].compiles.empty() && sizes[i].bytes > limit) too_large.push_back(i);
  choose_grains(shared, targets, std::move(too_large), limit, sizes);
  return sizes;
}

}  // namespace

std::string TraceMerges::sentence(std::uint64_t max_bytes) const {
  if (files == 0) return {};
  return std::to_string(files) + (files == 1 ? " trace was" : " traces were") +
         " reduced to fit into " + std::to_string(max_bytes) +
         " bytes before compression (the whole, and all compiles together): " +
         merged_text(coarsest_ns);
}

Result<TraceMerges> write_chrome_traces(const Analysis& analysis, std::vector<TraceTarget> targets,
                                        std::uint64_t max_bytes) {
  TraceShared shared(analysis);
  const std::vector<Size> sizes = choose_sizes(shared, targets, max_bytes);
  TraceMerges merges;
  std::vector<Traces::Planned> planned;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    planned.push_back({targets[i], sizes[i].grain_ns, targets[i].open});
    if (sizes[i].grain_ns > 0) ++merges.files;
    merges.coarsest_ns = std::max(merges.coarsest_ns, sizes[i].grain_ns);
  }
  TRY(Traces(shared, std::move(planned)).write());
  return merges;
}

Result<TraceMerges> write_chrome_trace(const Analysis& analysis, std::vector<CompileIndex> compiles,
                                       std::unique_ptr<ByteSink> sink, std::uint64_t max_bytes,
                                       const TraceWindow& window) {
  std::vector<TraceTarget> targets(1);
  targets[0].compiles = std::move(compiles);
  targets[0].window = window;
  targets[0].open = [&]() -> Result<std::unique_ptr<ByteSink>> { return std::move(sink); };
  return write_chrome_traces(analysis, std::move(targets), max_bytes);
}

Result<void> export_chrome(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  const ExportSettings& settings = request.settings;
  const std::uint64_t limit = settings.max_trace_bytes;
  ASSIGN_OR_RETURN(const TraceMerges merges,
                   write_chrome_trace(request.analysis, request.compiles, std::move(sink), limit,
                                      settings.window));
  if (const std::string merged = merges.sentence(limit); !merged.empty() && settings.note)
    settings.note(merged);
  return {};
}

}  // namespace dynprof
