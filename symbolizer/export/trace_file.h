// One chrome trace file: its head, and one line of JSON per slice. Which samples go into it is
// decided in chrome.cpp.
//
// More than 15 public members (TraceFile): one for each kind of slice.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "symbolizer/attribution/spans.h"
#include "symbolizer/base/file_output.h"
#include "symbolizer/base/json_writer.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/export/trace_merge.h"
#include "symbolizer/profile/analysis.h"

namespace dynprof {

// A thread with its rows: stacks (the tid itself), compiles, runs of compiled regions, and operators.
struct TraceRow {
  std::int32_t pid = 0;
  std::int32_t tid = 0;
  StringId comm = 0;
  bool has_compiles = false;
  bool has_runs = false;
  bool has_operators = false;
  std::string frames_place{};  // `,"pid":1,"tid":2,"ts":` of a slice of its stacks

  std::int64_t frames_tid() const;
  std::int64_t spans_tid() const;
  std::int64_t runs_tid() const;
  std::int64_t operators_tid() const;
  std::int64_t annotations_tid() const;
};

// The end of a slice's JSON: what all slices of a function have in common is made when it is first drawn.
class FrameTexts {
 public:
  FrameTexts(const ResolvedFrames& frames, const StackIndex& index)
      : frames_(frames), index_(index), texts_(index.function_count()) {}

  // `,"name":...,"args":{...}}`
  void append_end(std::string& out, FrameId frame);
  FrameKind kind(FrameId frame) const { return frames_[frame].kind; }

 private:
  const ResolvedFrames& frames_;
  const StackIndex& index_;
  std::vector<std::string> texts_;  // by function; "": not made
};

// What all files made in one pass share.
struct TraceShared {
  explicit TraceShared(const Analysis& analysis);
  TraceShared(const TraceShared&) = delete;
  TraceShared& operator=(const TraceShared&) = delete;

  const Attribution& attribution;
  const Tables& tables;
  // A thread that changed its name is several entries of the table but one row, with its last name.
  std::vector<TraceRow> rows;
  std::vector<std::uint32_t> row_of_thread;  // by ThreadId
  // By row: the spans of each whole compile. Rows, here as in Spans, are one per (pid, tid) in order
  // of first appearance.
  std::vector<std::unordered_map<SpanIndex, std::vector<SpanIndex>>> members;
  const StackIndex& index;
  // By StackId: frames that called the innermost compile on the stack, 0 if there is none.
  std::vector<std::uint32_t> frames_before_compile;
  FrameTexts texts;
  std::uint64_t period_ns;
  std::uint64_t base_ns;
  const GpuWork& gpu;
  const Waits& waits;
  std::vector<std::vector<std::uint32_t>> waits_of_row;  // those to draw, by begin
  const ProcessTree& processes;
  const Operators& operators;
  // Names of the child processes drawn, and their places among processes.
  struct ChildRow {
    std::string name;
    std::int64_t sort = 0;
  };
  std::map<std::int32_t, ChildRow> child_rows;  // by pid
  std::size_t children_left_out = 0;
};

class TraceFile {
 public:
  // Slices shorter than the grain are merged; stacks and waits come merged already.
  TraceFile(TraceShared& shared, std::unique_ptr<ByteSink> sink, std::uint64_t grain_ns = 0,
            const TraceWindow& window = {});
  bool failed() const { return json_.failed(); }
  bool shows(std::int32_t pid) const {
    return window_.pid == 0 || window_.pid == pid || devices_.contains(pid);
  }
  // A GPU's rows have its number for a pid.
  void show_device(std::int32_t pid) { devices_.insert(pid); }
  // Everything up to the first slice; only these rows may be drawn.
  void begin(std::span<const TraceRow> rows);
  void frame(const TraceRow& row, const FrameSlice& slice);
  void span(const TraceRow& row, const SpanSlice& slice);
  // A phase of torch's, or a run of what it compiled, exactly; drawn from `begin_ns` to `end_ns`.
  void phase(const TraceRow& row, std::uint64_t begin_ns, std::uint64_t end_ns,
             CompileIndex compile, const PhaseSpan& span);
  // A thread off the CPU, above the slices of its stack.
  std::string what_for(const TraceRow& row, const Wait& wait) const;
  void wait(const TraceRow& row, std::uint64_t begin_ns, const Wait& wait);
  void waits(const TraceRow& row, std::uint64_t begin_ns, const MergedWaits& waits);
  void run(const TraceRow& row, std::uint64_t begin_ns, std::uint64_t end_ns, const RegionRun& run);
  // The row for the programs of a child process.
  void child_process(std::int32_t pid, std::int64_t row);
  // One end of an arrow: 's' or 'f'.
  void flow(char end, const char* category, std::uint64_t id, std::int32_t pid, std::int64_t tid,
            std::uint64_t time_ns);
  Result<void> finish();

  // For what is drawn elsewhere (gpu_trace.h): begins a slice, which the caller ends. False: nothing of
  // it is after the start of the trace, or it is merged with others.
  bool slice_begin(const char* category, std::int32_t pid, std::int64_t tid, std::uint64_t begin_ns,
                   std::uint64_t end_ns);
  // The same for what samples show, of which a trace that would be too large has fewer.
  bool sampled_slice_begin(const char* category, std::int32_t pid, std::int64_t tid,
                           std::uint64_t begin_ns, std::uint64_t end_ns);
  JsonWriter& json() { return json_; }

 private:
  void head();
  void open_slice(const char* category, std::int32_t pid, std::int64_t tid, std::uint64_t begin,
                  std::uint64_t end);
  void merged(const SliceMerger::Merged& slices);
  void processes(std::span<const TraceRow> rows);
  void process(std::int32_t pid, const std::string& name, const char* label, std::int64_t sort);
  void threads(const TraceRow& row);
  void compile_args(CompileIndex index, const char* kind);
  std::uint64_t relative(std::uint64_t ns) const;
  struct Times {
    std::uint64_t begin = 0, end = 0;  // from the start of the trace on
  };
  // What of it is in the window; equal: nothing.
  Times in_window(std::uint64_t begin_ns, std::uint64_t end_ns) const;

  TraceShared& shared_;
  std::unique_ptr<ByteSink> sink_;
  JsonWriter json_;
  std::set<std::int32_t> named_;  // processes
  std::uint64_t grain_ns_;
  TraceWindow window_;
  std::set<std::int32_t> devices_;
  SliceMerger merger_;
};

}  // namespace dynprof
