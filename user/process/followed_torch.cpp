// The part of FollowedProcess that is about torch: its compiles as they happen, and what it remembers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "symbolizer/base/text.h"
#include "user/history/graph_breaks.h"
#include "user/kernel/clock.h"
#include "user/process/target_access.h"
#include "user/target/backward_nodes.h"
#include "user/target/marker_rules.h"
#include "user/target/torch_lacks.h"

namespace dynprof {
namespace {

// Torch may be imported, and its classes first used, at any time: one cheap look a second.
constexpr std::uint64_t kTorchLookNs = 1'000'000'000;
// While it is being imported, which takes seconds: its libraries are to be probed before it is used.
constexpr std::uint64_t kImportLookNs = 100'000'000;
constexpr unsigned kImportLooks = 300;
// While the first compile goes on, between two looks for what it makes.
constexpr std::uint64_t kTracingLookNs = 20'000'000;
constexpr std::uint64_t kSlowestTracingLookNs = 1'000'000'000;

}  // namespace

bool FollowedProcess::is_compiling() const {
  for (const RemoteThread& thread : python_->threads) {
    auto frames = walk_frames(access_->objects, thread.tstate, DP_MAX_PYTHON_FRAMES);
    if (!frames) return true;  // torn: not known
    for (const RemoteFrame& frame : *frames)
      if (markers_.contains(frame.code)) return true;
  }
  return false;
}

void FollowedProcess::look_for_tracing() {
  if (auto functions = resolve_phase_functions(access_->objects, *python_))
    std::copy(functions->begin(), functions->end(), torch_.layout.phase_functions);
  torch_.layout.break_list = graph_break_list(access_->objects, *python_);
  auto watch = resolve_inline_function(access_->objects, *python_);
  if (!watch) return;
  torch_.layout.inline_code = watch->code;
  torch_.layout.inline_begin = watch->begin;
  torch_.layout.inline_end = watch->end;
  torch_.layout.inline_begin_unit = watch->begin_unit;
  torch_.layout.inline_end_unit = watch->end_unit;
  torch_.layout.inline_slot = watch->slot;
}

void FollowedProcess::look_for_torch(std::uint64_t now_ns, KernelSide& kernel) {
  next_look_ns_ = now_ns + kTorchLookNs;
  auto found = resolve_torch(access_->objects, *python_);
  if (!found) {
    if (looks_ == 0) no_compile_at_start_ = true;
    return;
  }
  const bool probed = probes_.attached() || !kernel.may_probe();
  if (!probed && looks_ < kImportLooks) next_look_ns_ = now_ns + kImportLookNs;
  if (torch_.version != found->version) described_ = false;
  torch_ = std::move(*found);
  torch_.layout.region = probes_.region();
  torch_.layout.node = probes_.node();
  look_for_tracing();
  auto markers = resolve_markers(access_->objects, *python_);
  for (const ResolvedMarker& marker : markers) add_marker(marker, kernel);
  if (looks_ == 0) no_compile_at_start_ = !markers.empty() && !is_compiling();
  // Markers in modules that are imported later are met at first sight.
  if (torch_.complete && !markers.empty() && probed) next_look_ns_ = 0;
}

std::optional<WatchedProcess> FollowedProcess::watched(RecordingWriter& writer,
                                                       KernelSide& kernel) {
  if (!access_ || !torch_.layout.compile_context_type) return std::nullopt;
  return WatchedProcess{access_->objects,
                        *python_,
                        torch_.layout,
                        writer,
                        kernel,
                        [this, &writer](pid_t tid) { return thread(tid, writer); },
                        [this, &writer, &kernel](std::uint64_t address, std::uint32_t identity) {
                          CodeRequest request{address, identity};
                          learn({&request, 1}, writer, kernel);
                          return code(address, identity);
                        }};
}

void FollowedProcess::attach_probes(KernelSide& kernel) {
  if (!kernel.may_probe()) return;
  if (!access_ || torch_.version.empty() || probes_.attached()) return;
  const bool saw_phases = probes_.sees_phases();
  const bool complete = probes_.attach(kernel, access_->objects, *python_);
  if (probes_.sees_phases() && !saw_phases) {
    watch_.note_open_phases(access_->objects, *python_, torch_.layout);
    watch_.prepare_inlined(access_->objects, *python_, torch_.layout, kernel);
  }
  if (!complete) return;
  torch_.layout.region = probes_.region();
  torch_.layout.node = probes_.node();
  (void)tell_kernel(kernel);
}

void FollowedProcess::watch_torch(RecordingWriter& writer, KernelSide& kernel) {
  attach_probes(kernel);
  if (auto process = watched(writer, kernel)) watch_.look_at_all(*process);
}

// The first compile makes the first CompileContext, and may import Dynamo's tracer: only then is it known how
// the one is laid out, and where the other is. Some torch has no such tracer, so this is tried less and
// less often.
void FollowedProcess::look_for_more(std::uint64_t now_ns, KernelSide& kernel) {
  if (!access_ || (torch_.complete && torch_.layout.inline_code != 0)) return;
  if (now_ns < next_tracing_look_ns_) return;
  tracing_backoff_ns_ = std::clamp(2 * tracing_backoff_ns_, kTracingLookNs, kSlowestTracingLookNs);
  if (torch_.complete)
    look_for_tracing();
  else
    look_for_torch(now_ns, kernel);
  (void)tell_kernel(kernel);
  next_tracing_look_ns_ = monotonic_ns() + tracing_backoff_ns_;
}

void FollowedProcess::watch_thread(pid_t tid, RecordingWriter& writer, KernelSide& kernel) {
  look_for_more(monotonic_ns(), kernel);
  if (auto process = watched(writer, kernel)) watch_.look_at(*process, tid, monotonic_ns());
}

// Code that was not known calls time.time_ns. True: it is torch's, and the kernel side knows its
// functions from here on.
bool FollowedProcess::look_for_phases(const dp_phase_event& event, KernelSide& kernel) {
  if (!access_) return false;
  const RemoteCode code = access_->reader.read(event.code);
  if (!is_phase_function(code, python_->layout.python)) {
    dp_marker_code plain = {};
    plain.identity = code.identity;
    kernel.add_code(static_cast<std::uint32_t>(pid_), event.code, plain);
    return false;
  }
  look_for_torch(monotonic_ns(), kernel);
  (void)tell_kernel(kernel);
  return torch_.layout.phase_functions[0].code != 0;
}

void FollowedProcess::on_phase(const dp_phase_event& event, RecordingWriter& writer,
                               KernelSide& kernel) {
  if (event.edge == DP_PHASE_TOO_OFTEN) {
    probes_.give_up_clock(pid_);
    if (auto process = watched(writer, kernel)) watch_.finish(*process, event.header.time_ns);
    return;
  }
  dp_phase_event seen = event;
  std::string name(event.name, event.name_size);
  if (event.edge == DP_PHASE_UNKNOWN) {
    // The first phase of all: its frame is still there, unless it was very short.
    if (!look_for_phases(event, kernel)) return;
    auto phase = read_phase_frame(access_->objects, torch_.layout.phase_functions, event);
    if (!phase) return;
    seen.edge = phase->edge;
    name = std::move(phase->name);
  } else if (auto fixed = fixed_phase_name(event.function); !fixed.empty()) {
    name = fixed;
    seen.frame = 0;  // one function begins it, another ends it: they have no frame in common
  }
  if (seen.edge == DP_PHASE_END) facts_.compiled(event.header.time_ns);
  compile_goes_on();
  look_for_more(monotonic_ns(), kernel);
  auto process = watched(writer, kernel);
  if (process && watch_.on_phase(*process, seen, name)) facts_.compile_ended(event.header.time_ns);
}

void FollowedProcess::on_inline(const dp_inline_event& event, RecordingWriter& writer,
                                KernelSide& kernel) {
  if (auto process = watched(writer, kernel)) watch_.on_inline(*process, event);
}

// What an autograd node that begins to run is; "" for none that runs compiled code.
std::string FollowedProcess::node_name(const dp_probe_event& event, KernelSide& kernel) {
  if (event.probe != DP_PROBE_NODE_BEGIN || !access_) return {};
  // A class is identified by its contents: its address may have been reused.
  RemoteValues values(access_->objects, *python_);
  if (event.object) return backward_run_name(values, torch_.layout, python_->none, event.object);
  for (std::uint16_t i = 0; i < DP_NODE_WORDS; ++i) {
    std::string name = backward_run_name(values, torch_.layout, python_->none, event.types[i]);
    if (name.empty()) continue;
    torch_.layout.node_object = static_cast<std::uint16_t>(DP_NODE_FIRST_WORD + 8 * i);
    (void)tell_kernel(kernel);
    return name;
  }
  return {};
}

void FollowedProcess::on_probe(const dp_probe_event& event, RecordingWriter& writer,
                               KernelSide& kernel) {
  const auto tid = static_cast<pid_t>(event.header.tid);
  probes_.on_run(event, node_name(event, kernel), thread(tid, writer), writer);
}

void FollowedProcess::compile_goes_on() {
  if (!lines_ && python_) lines_ = std::make_unique<LineWatch>(*python_, user_packages_);
  if (lines_) lines_->wake();
}

void FollowedProcess::compile_seen(const KernelSide& kernel) {
  if (!kernel.may_probe()) compile_goes_on();
}

void FollowedProcess::write_lines(RecordingWriter& writer) {
  if (!lines_) return;
  CompileReadings readings = lines_->take();
  write_thread_names(readings.names, writer);
  for (const LineReading& reading : readings.lines) {
    Context context;
    context.torch.status = TorchStatus::kRead;
    context.torch.autograd_id = reading.ids.autograd_id;
    context.torch.frame_id = reading.ids.frame_id;
    context.torch.compile_id = reading.ids.compile_id;
    context.torch.attempt = reading.ids.attempt;
    LineSample sample;
    sample.time_ns = reading.time_ns;
    sample.weight_ns = reading.weight_ns;
    sample.thread = thread(reading.tid, writer);
    sample.context = writer.context(context);
    sample.use = reading.use;
    sample.line = {writer.string(reading.line.file),
                   static_cast<std::uint32_t>(std::max(reading.line.line, 0)),
                   writer.string(reading.line.function)};
    writer.line_sample(sample);
    if (reading.module.empty()) continue;
    writer.module_sample({.time_ns = sample.time_ns,
                          .weight_ns = sample.weight_ns,
                          .thread = sample.thread,
                          .context = sample.context,
                          .use = sample.use,
                          .module = writer.string(reading.module)});
  }
  for (const LockReading& reading : readings.locks) {
    writer.lock_sample(
        {reading.time_ns, reading.weight_ns, thread(reading.tid, writer), reading.holder});
  }
}

// Only those that are new: a name seldom changes.
void FollowedProcess::write_thread_names(std::map<pid_t, std::string>& names,
                                         RecordingWriter& writer) {
  constexpr std::size_t kMaxKnown = 4096;
  nlohmann::ordered_json changed = nlohmann::ordered_json::object();
  for (auto& [tid, name] : names) {
    if (thread_names_.size() >= kMaxKnown) thread_names_.clear();
    std::string& known = thread_names_[tid];
    if (known == name) continue;
    known = std::move(name);
    changed[std::to_string(tid)] = valid_utf8(known);
  }
  if (changed.empty()) return;
  writer.fact({.pid = pid_,
               .time_ns = monotonic_ns(),
               .kind = writer.string("threads"),
               .body = writer.blob(changed.dump())});
}

void FollowedProcess::refresh_facts(std::uint64_t now_ns) {
  if (!access_ || torch_.version.empty()) return;
  facts_.read_note(access_->objects, *python_, now_ns);
  facts_.refresh(*python_, now_ns, watch_.compiling());
}

void FollowedProcess::refresh_facts_at_attach() {
  if (access_ && !torch_.version.empty()) facts_.refresh_at_attach(access_->objects, *python_);
}

void FollowedProcess::refresh_facts_at_end() {
  if (access_ && !torch_.version.empty()) facts_.refresh_at_end(access_->objects, *python_);
}

std::vector<std::string> FollowedProcess::torch_lacks() {
  if (!access_ || torch_.version.empty()) return {};
  return dynprof::torch_lacks(access_->objects, *python_);
}

void FollowedProcess::end_watches(RecordingWriter& writer, KernelSide& kernel) {
  probes_.detach();
  if (auto process = watched(writer, kernel)) watch_.finish(*process, monotonic_ns());
}

StringId FollowedProcess::phase_name(const dp_phase_name& name, RecordingWriter& writer) {
  constexpr std::size_t kMaxNames = 4096;  // torch has about a hundred
  if (!access_) return 0;
  if (phase_names_.size() >= kMaxNames) phase_names_.clear();
  const std::pair key(name.object, name.hash);
  auto at = phase_names_.find(key);
  if (at != phase_names_.end()) return at->second;
  StringId text = writer.string(read_phase_name(access_->objects, name));
  if (text != 0) phase_names_.emplace(key, text);
  return text;
}

}  // namespace dynprof
