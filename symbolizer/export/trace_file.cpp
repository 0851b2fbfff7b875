#include "symbolizer/export/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "symbolizer/export/display.h"
#include "symbolizer/export/gpu_trace.h"
#include "symbolizer/export/process_trace.h"
#include "symbolizer/export/trace_metadata.h"
#include "symbolizer/export/trace_row_numbers.h"

namespace dynprof {
namespace {

// Kineto's "kernel" is a GPU kernel and tools add those up: the operating system's get a word of
// their own.
const char* category(FrameKind kind) {
  switch (kind) {
    case FrameKind::kPython:
      return "python_function";
    case FrameKind::kNative:
      return "native";
    case FrameKind::kKernel:
      return "os_kernel";
  }
  return "native";
}

}  // namespace

std::int64_t TraceRow::frames_tid() const {
  return tid >= 0 && tid <= kMaxTid ? tid : kBadTidBase + static_cast<std::uint32_t>(tid);
}

std::int64_t TraceRow::spans_tid() const { return kSpanRowBase + frames_tid(); }
std::int64_t TraceRow::runs_tid() const { return kRunRowBase + frames_tid(); }
std::int64_t TraceRow::operators_tid() const { return kOperatorRowBase + frames_tid(); }
std::int64_t TraceRow::annotations_tid() const { return kAnnotationRowBase + frames_tid(); }

void FrameTexts::append_end(std::string& out, FrameId frame) {
  const ResolvedFrame& resolved = frames_[frame];
  std::string& text = texts_[index_.function_of(frame)];
  if (text.empty()) {
    text = ",\"name\":\"" + json_escape(display_name(resolved)) + '"';
    if (!resolved.file.empty()) {
      text += resolved.kind == FrameKind::kPython ? ",\"args\":{\"file\":\""
                                                  : ",\"args\":{\"object\":\"";
      text += json_escape(cap_text(resolved.file)) + '"';
    }
  }
  out += text;
  if (!resolved.file.empty()) {
    if (!resolved.source_file.empty())
      out += ",\"file\":\"" + json_escape(cap_text(resolved.source_file)) + '"';
    if (resolved.line > 0) {
      out += ",\"line\":";
      append_number(out, resolved.line);
    }
    if (resolved.inlined) out += ",\"inlined\":true";
    out += '}';
  }
  out += '}';
}

TraceShared::TraceShared(const Analysis& analysis)
    : attribution(analysis.attribution()),
      tables(analysis.tables()),
      index(analysis.stacks()),
      texts(attribution.frames(), index),
      period_ns(drawing_period_ns(attribution.recording().meta())),
      base_ns(attribution.recording().meta().start_ns),
      gpu(analysis.gpu()),
      waits(analysis.waits()),
      processes(analysis.processes()),
      operators(analysis.operators()) {
  child_rows = child_process_rows(processes);
  children_left_out = child_processes_left_out(processes);
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> known;
  for (const Thread& thread : tables.threads) {
    auto [it, added] =
        known.try_emplace({thread.pid, thread.tid}, static_cast<std::uint32_t>(rows.size()));
    if (added) {
      TraceRow& row = rows.emplace_back(TraceRow{.pid = thread.pid, .tid = thread.tid});
      row.frames_place = fmt::format(",\"pid\":{},\"tid\":{},\"ts\":", row.pid, row.frames_tid());
    }
    rows[it->second].comm = thread.comm;
    row_of_thread.push_back(it->second);
  }
  frames_before_compile.resize(tables.stacks.size());
  for (StackId stack = 1; stack < tables.stacks.size(); ++stack) {
    frames_before_compile[stack] = attribution.begins_compile(stack)
                                       ? index.depth(stack) - 1
                                       : frames_before_compile[index.caller(stack)];
  }
  for (const Compile& compile : attribution.compiles()) {
    if (compile.thread != kNoThread) rows[row_of_thread[compile.thread]].has_compiles = true;
  }
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const ThreadSpans& spans = attribution.spans().threads()[row];
    rows[row].has_runs = !spans.runs.empty();
    auto& of_root = members.emplace_back();
    for (SpanIndex i = 0; i < spans.phases.size(); ++i) {
      if (spans.phases[i].root != kNoSpan) of_root[spans.phases[i].root].push_back(i);
    }
  }
  waits_of_row.resize(rows.size());
  for (std::uint32_t i = 0; i < tables.waits.size(); ++i) {
    const Wait& wait = tables.waits[i];
    // Where the short ones of a sum were is not known.
    if (wait.kind != WaitKind::kNone && wait.span_ns == wait.length_ns)
      waits_of_row[row_of_thread[wait.thread]].push_back(i);
  }
  for (const StackCount& count : analysis.counts().all())
    if (operators.call_of(count.stack) != 0) rows[row_of_thread[count.thread]].has_operators = true;
  for (const GpuCall& call : gpu.calls())
    if (call.thread != kNoThread) rows[row_of_thread[call.thread]].has_runs = true;
}

TraceFile::TraceFile(TraceShared& shared, std::unique_ptr<ByteSink> sink, std::uint64_t grain_ns,
                     const TraceWindow& window)
    : shared_(shared),
      sink_(std::move(sink)),
      json_(*sink_),
      grain_ns_(grain_ns),
      window_(window),
      merger_(grain_ns) {}

void TraceFile::begin(std::span<const TraceRow> rows) {
  head();
  processes(rows);
  for (const TraceRow& row : rows) threads(row);
}

void TraceFile::head() {
  const Meta& meta = shared_.attribution.recording().meta();
  json_.begin_object();
  json_.field("schemaVersion", 1);
  json_.field("displayTimeUnit", "ms");
  // Kineto's convention: unix nanoseconds = baseTimeNanoseconds + ts * 1000.
  json_.field("baseTimeNanoseconds",
              static_cast<std::int64_t>(meta.start_ns +
                                        static_cast<std::uint64_t>(meta.realtime_offset_ns)));
  json_.key("dynprof");
  json_.begin_object();
  json_.field("version", meta.version);
  json_.field("clock", "CLOCK_MONOTONIC");
  json_.field("start_monotonic_ns", meta.start_ns);
  json_.field("realtime_offset_ns", meta.realtime_offset_ns);
  json_.field("sampling_period_ns", shared_.period_ns);
  json_.field("event", meta.event);
  json_.field("command", cap_text(meta.command));
  json_.field("python", meta.python);
  json_.field("torch", meta.torch);
  json_.field("child_processes_left_out", shared_.children_left_out);
  if (grain_ns_ > 0) {
    json_.field("merged_below_ns", grain_ns_);
    json_.field("note", "the whole would be too large: " + merged_text(grain_ns_));
  }
  json_.end_object();
  write_device_properties(json_, shared_.gpu);
  json_.key("traceEvents");
  json_.begin_array();
}

// Nearly all of a trace is made of these: from parts that are made once.
void TraceFile::frame(const TraceRow& row, const FrameSlice& slice) {
  const auto [begin_at, end_at] = in_window(slice.begin_ns, slice.end_ns);
  const std::uint64_t begin = begin_at, end = end_at;
  if (begin >= end) return;
  const bool missing = slice.frame == kRootMissing;
  json_.element([&](std::string& out) {
    out += "\n{\"ph\":\"X\",\"cat\":\"";
    out += category(missing ? FrameKind::kPython : shared_.texts.kind(slice.frame));
    out += '"';
    out += row.frames_place;
    append_microseconds(out, begin);
    out += ",\"dur\":";
    append_microseconds(out, end - begin);
    if (missing)
      out += ",\"name\":\"<root side missing>\"}";
    else
      shared_.texts.append_end(out, slice.frame);
  });
}

void TraceFile::span(const TraceRow& row, const SpanSlice& slice) {
  const Compile& compile = shared_.attribution.compiles()[slice.compile];
  const char* kind = compile_kind_text(compile.kind);
  if (!slice_begin(slice.is_phase ? "phase" : "compile", row.pid, row.spans_tid(), slice.begin_ns,
                   slice.end_ns)) {
    return;
  }
  if (slice.is_phase) {
    json_.field("name", phase_text(slice.phase));
  } else {
    std::string name =
        "Compile " + compile.id.text() + ' ' + kind + " attempt " + std::to_string(compile.attempt);
    if (compile.repeat > 1) name += " (again, " + std::to_string(compile.repeat) + ')';
    json_.field("name", name);
  }
  json_.key("args");
  json_.begin_object();
  json_.field("trace_id", compile.id.text());
  json_.field("attempt", compile.attempt);
  if (!slice.is_phase) compile_args(slice.compile, kind);
  json_.end_object();
  json_.end_object();
}

void TraceFile::phase(const TraceRow& row, std::uint64_t begin_ns, std::uint64_t end_ns,
                      CompileIndex index, const PhaseSpan& span) {
  const Compile& compile = shared_.attribution.compiles()[index];
  bool is_attempt = span.role == PhaseRole::kAttempt;
  if (!slice_begin(is_attempt ? "attempt" : "phase", row.pid, row.spans_tid(), begin_ns, end_ns)) {
    return;
  }
  std::string_view name = shared_.tables.strings[span.name];
  if (is_attempt) {
    json_.field("name", "attempt " + std::to_string(span.number));
  } else {
    json_.field("name", name.empty() ? phase_text(span.phase) : cap_text(name));
  }
  json_.key("args");
  json_.begin_object();
  json_.field("trace_id", compile.id.text());
  json_.field("attempt", compile.attempt);
  json_.field("phase", phase_text(span.phase));
  if (!span.begin_known) json_.field("begin", "not seen");
  if (!span.end_known) json_.field("end", "not seen");
  json_.end_object();
  json_.end_object();
}

void TraceFile::run(const TraceRow& row, std::uint64_t begin_ns, std::uint64_t end_ns,
                    const RegionRun& run) {
  if (!slice_begin("cpu_op", row.pid, row.runs_tid(), begin_ns, end_ns)) return;
  std::string_view name = shared_.tables.strings[run.name];
  json_.field("name", name.empty() ? std::string("Torch-Compiled Region") : cap_text(name));
  json_.key("args");
  json_.begin_object();
  if (is_valid(run.id)) json_.field("trace_id", run.id.text());
  if (!run.end_known) json_.field("end", "not seen");
  json_.end_object();
  json_.end_object();
}

// The child it was for, else the kind of wait.
std::string TraceFile::what_for(const TraceRow& row, const Wait& wait) const {
  const ChildProcess* child = shared_.processes.waited_for(row.pid, row.tid, wait);
  return child ? cap_text(shared_.processes.title(*child)) : std::string(wait_kind_text(wait.kind));
}

void TraceFile::wait(const TraceRow& row, std::uint64_t begin_ns, const Wait& wait) {
  if (!sampled_slice_begin("idle", row.pid, row.frames_tid(), begin_ns, wait.end_ns())) return;
  const bool preempted = wait.kind == WaitKind::kPreempted;
  json_.field("name", preempted ? std::string("preempted") : "wait: " + what_for(row, wait));
  json_.key("args");
  json_.begin_object();
  json_.field("kind", wait_kind_text(wait.kind));
  json_.key("runnable_ms");
  json_.microseconds(wait.runnable_ns / 1000);
  if (wait.flags & kWaitAtAttach) json_.field("begin", "not seen");
  if (wait.flags & kWaitAtEnd) json_.field("end", "not seen");
  json_.end_object();
  json_.end_object();
}

void TraceFile::waits(const TraceRow& row, std::uint64_t begin_ns, const MergedWaits& waits) {
  if (!sampled_slice_begin("idle", row.pid, row.frames_tid(), begin_ns, waits.end_ns)) return;
  json_.field("name", std::to_string(waits.count) + " short waits");
  json_.key("args");
  json_.begin_object();
  json_.field("count", waits.count);
  json_.field("longest", wait_kind_text(waits.longest.kind));
  json_.key("waited_ms");
  json_.microseconds(waits.waited_ns / 1000);
  json_.key("runnable_ms");
  json_.microseconds(waits.runnable_ns / 1000);
  json_.end_object();
  json_.end_object();
}

void TraceFile::merged(const SliceMerger::Merged& slices) {
  open_slice("merged", slices.row.first, slices.row.second, slices.begin_ns, slices.end_ns);
  json_.field("name", std::to_string(slices.count) + " short slices");
  json_.key("args");
  json_.begin_object();
  json_.field("count", slices.count);
  json_.key("busy_ms");
  json_.microseconds(slices.busy_ns / 1000);
  json_.end_object();
  json_.end_object();
}

void TraceFile::flow(char end, const char* category, std::uint64_t id, std::int32_t pid,
                     std::int64_t tid, std::uint64_t time_ns) {
  if (relative(time_ns) < window_.from_ns || relative(time_ns) >= window_.to_ns || !shows(pid))
    return;
  json_.line_break();
  json_.begin_object();
  json_.field("ph", std::string_view(&end, 1));
  if (end == 'f') json_.field("bp", "e");
  json_.field("cat", category);
  json_.field("name", category);
  json_.field("id", id);
  json_.field("pid", pid);
  json_.field("tid", tid);
  json_.key("ts");
  json_.microseconds(relative(time_ns));
  json_.end_object();
}

void TraceFile::child_process(std::int32_t pid, std::int64_t row) {
  if (!named_.contains(pid)) {
    const TraceShared::ChildRow& child = shared_.child_rows.at(pid);
    process(pid, child.name, "CPU", child.sort);
  }
  write_metadata(json_, "thread_name", pid, row, "name", "programs");
  write_metadata(json_, "thread_sort_index", pid, row, "sort_index", 0);
}

Result<void> TraceFile::finish() {
  for (const SliceMerger::Merged& slices : merger_.take()) merged(slices);
  json_.end_array();
  json_.end_object();
  return json_.finish();
}

void TraceFile::compile_args(CompileIndex index, const char* kind) {
  const Compile& compile = shared_.attribution.compiles()[index];
  json_.field("kind", kind);
  const CompiledFunction function = shared_.attribution.function(index);
  if (!function.qualname.empty()) {
    json_.field("function", cap_text(function.qualname));
    json_.field("file", cap_text(function.file));
    json_.field("line", function.line);
  }
  json_.field("samples", compile.samples);
  json_.field("complete", compile.complete());
  if (compile.timing != kNoIndex) json_.field("exact", compile.exact);
}

std::uint64_t TraceFile::relative(std::uint64_t ns) const {
  return ns > shared_.base_ns ? ns - shared_.base_ns : 0;
}

TraceFile::Times TraceFile::in_window(std::uint64_t begin_ns, std::uint64_t end_ns) const {
  const std::uint64_t begin = std::max(relative(begin_ns), window_.from_ns);
  return {begin, std::max(begin, std::min(relative(end_ns), window_.to_ns))};
}

bool TraceFile::slice_begin(const char* kind, std::int32_t pid, std::int64_t tid,
                            std::uint64_t begin_ns, std::uint64_t end_ns) {
  const auto [begin, end] = in_window(begin_ns, end_ns);
  if (begin >= end || !shows(pid)) return false;
  const auto [before, draw] = merger_.add({pid, tid}, begin, end);
  if (before) merged(*before);
  if (draw) open_slice(kind, pid, tid, begin, end);
  return draw;
}

bool TraceFile::sampled_slice_begin(const char* kind, std::int32_t pid, std::int64_t tid,
                                    std::uint64_t begin_ns, std::uint64_t end_ns) {
  const auto [begin, end] = in_window(begin_ns, end_ns);
  if (begin < end) open_slice(kind, pid, tid, begin, end);
  return begin < end;
}

// Times from the start of the trace on.
void TraceFile::open_slice(const char* kind, std::int32_t pid, std::int64_t tid,
                           std::uint64_t begin, std::uint64_t end) {
  json_.line_break();
  json_.begin_object();
  json_.field("ph", "X");
  json_.field("cat", kind);
  json_.field("pid", pid);
  json_.field("tid", tid);
  json_.key("ts");
  json_.microseconds(begin);
  json_.key("dur");
  json_.microseconds(end - begin);
}

void TraceFile::process(std::int32_t pid, const std::string& name, const char* label,
                        std::int64_t sort) {
  named_.insert(pid);
  write_metadata(json_, "process_name", pid, 0, "name", name);
  write_metadata(json_, "process_labels", pid, 0, "labels", label);
  write_metadata(json_, "process_sort_index", pid, 0, "sort_index", sort);
}

void TraceFile::processes(std::span<const TraceRow> rows) {
  const Tables& tables = shared_.tables;
  std::map<std::int32_t, const Process*> known;
  for (const TraceRow& row : rows) known.emplace(row.pid, nullptr);
  for (const Process& process : tables.processes) {
    if (auto it = known.find(process.pid); it != known.end()) it->second = &process;
  }
  for (auto [pid, process] : known) {
    std::string name;
    if (process != nullptr) name = cap_text(tables.strings[process->comm]);
    if (name.empty()) name = "process " + std::to_string(pid);
    std::int64_t sort = pid;
    if (auto child = shared_.child_rows.find(pid); child != shared_.child_rows.end()) {
      name = child->second.name;
      sort = child->second.sort;
    }
    const bool is_target = pid == shared_.attribution.recording().meta().target_pid;
    const std::string label =
        is_target && shared_.children_left_out > 0
            ? fmt::format("CPU; {} child processes are not drawn", shared_.children_left_out)
            : "CPU";
    this->process(pid, name, label.c_str(), sort);
  }
}

// All rows have the same sort index, the thread's own as in Kineto's traces; viewers then go by
// name, which puts the compiles and runs right above the stacks.
void TraceFile::threads(const TraceRow& row) {
  const Tables& tables = shared_.tables;
  std::string tid = std::to_string(row.tid);
  if (row.has_compiles) {
    write_metadata(json_, "thread_name", row.pid, row.spans_tid(), "name",
                   "compiles (tid " + tid + ')');
    write_metadata(json_, "thread_sort_index", row.pid, row.spans_tid(), "sort_index", row.tid);
  }
  if (row.has_runs) {
    write_metadata(json_, "thread_name", row.pid, row.runs_tid(), "name",
                   "regions (tid " + tid + ')');
    write_metadata(json_, "thread_sort_index", row.pid, row.runs_tid(), "sort_index", row.tid);
  }
  const std::string_view comm = tables.strings[row.comm];
  write_metadata(json_, "thread_name", row.pid, row.frames_tid(), "name",
                 "thread " + tid + " (" + (comm.empty() ? "gone" : cap_text(comm)) + ')');
  write_metadata(json_, "thread_sort_index", row.pid, row.frames_tid(), "sort_index", row.tid);
}

}  // namespace dynprof
