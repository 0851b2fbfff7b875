#include "user/process/followed_process.h"

#include <fmt/format.h>

#include <algorithm>

#include "symbolizer/base/text.h"
#include "user/history/graph_breaks.h"
#include "user/kernel/clock.h"
#include "user/target/backward_nodes.h"
#include "user/target/marker_rules.h"
#include "user/target/process.h"
#include "user/target/torch_lacks.h"

namespace dynprof {
namespace {

// A process that is no Python now may be one soon: a shell that will exec it, an interpreter that is
// starting. Looked at often at first, then rarely, then left.
constexpr std::uint64_t kFirstLookNs = 5'000'000;
constexpr std::uint64_t kForkLookNs = 20'000'000;
constexpr std::uint64_t kSlowestLookNs = 1'000'000'000;
constexpr unsigned kPythonLooks = 16;
constexpr std::uint64_t kNoDescriptorsLookNs = 1'000'000'000;
// Torch may be imported, and its classes first used, at any time: one cheap look a second.
constexpr std::uint64_t kTorchLookNs = 1'000'000'000;
// While it is being imported, which takes seconds: its libraries are to be probed before it is used.
constexpr std::uint64_t kImportLookNs = 100'000'000;
constexpr unsigned kImportLooks = 300;
// While the first compile goes on, between two looks for what it makes.
constexpr std::uint64_t kTracingLookNs = 20'000'000;

std::uint64_t backoff(unsigned looks) {
  return std::min(kFirstLookNs << std::min(looks, 10U), kSlowestLookNs);
}

}  // namespace

struct FollowedProcess::Access {
  Access(pid_t pid, const PythonRuntime& python)
      : memory(pid), objects(memory, python.layout), reader(objects, python.code_type) {
    objects.set_str_type(python.str_type);
  }
  ProcessMemory memory;
  RemoteObjects objects;
  CodeReader reader;
};

FollowedProcess::FollowedProcess(pid_t pid, pid_t parent, bool follow_forks)
    : pid_(pid),
      parent_(parent),
      follow_forks_(follow_forks),
      space_(pid),
      first_seen_ns_(monotonic_ns()) {
  // Most children exec, or end, before a look is worth its time.
  if (parent != 0) next_look_ns_ = first_seen_ns_ + kForkLookNs;
}

FollowedProcess::~FollowedProcess() = default;

void FollowedProcess::inherit(const FollowedProcess& parent, KernelSide& kernel) {
  python_ = parent.python_;
  set_native_space(parent.native_space_);
  eval_ranges_ = parent.eval_ranges_;
  if (!python_) return;
  python_->pid = pid_;
  access_ = std::make_unique<Access>(pid_, *python_);
  torch_ = parent.torch_;
  codes_ = parent.codes_;
  for (const auto& [code, marker] : parent.markers_) add_marker({code, marker, nullptr}, kernel);
  next_look_ns_ = torch_.complete ? 0 : 1;
  // The kernel side made its own copy at the fork; by now the child may be another program.
}

void FollowedProcess::forget_image(std::uint64_t now_ns) {
  python_.reset();
  access_.reset();
  torch_ = {};
  codes_.clear();
  markers_.clear();
  watch_ = {};
  probes_ = {};
  facts_ = {};
  lines_.reset();
  phase_names_.clear();
  space_.forget();
  set_native_space(nullptr);
  native_addresses_.clear();
  eval_ranges_.reset();
  described_ = false;
  no_compile_at_start_ = true;  // we are here from its first instruction
  looks_ = 0;
  next_look_ns_ = now_ns + kFirstLookNs;
}

Result<void> FollowedProcess::discover(std::uint64_t now_ns, KernelSide& kernel) {
  if (!python_) {
    PythonDiscovery details;
    auto found = discover_python(pid_, &details);
    if (!found) {
      looks_++;
      bool again = details.fault == PythonFault::kNotPython ||
                   details.fault == PythonFault::kStarting ||
                   details.fault == PythonFault::kNoThreadState;
      next_look_ns_ = again && looks_ < kPythonLooks ? now_ns + backoff(looks_) : 0;
      if (details.no_descriptors) {
        // Others will be closed; until then nothing said of this process holds.
        next_look_ns_ = now_ns + kNoDescriptorsLookNs;
        waits_for_descriptors_ = true;
        return std::move(found).error();
      }
      fault_ = details.fault;
      if (fault_ == PythonFault::kStarting) no_compile_at_start_ = true;
      return std::move(found).error();
    }
    fault_ = PythonFault::kNone;
    python_ = std::move(*found);
    access_ = std::make_unique<Access>(pid_, *python_);
    described_ = false;
    // Before its first sample: by then it may have ended.
    if (native_space_) knows_eval_loop();
  }
  look_for_torch(now_ns, kernel);
  looks_++;
  return tell_kernel(kernel);
}

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

void FollowedProcess::add_marker(const ResolvedMarker& marker, KernelSide& kernel) {
  auto [at, added] = markers_.insert_or_assign(marker.code, marker.marker);
  kernel.add_code(static_cast<std::uint32_t>(pid_), at->first, at->second);
}

dp_process FollowedProcess::kernel_view() const {
  dp_process process = {};
  std::uint32_t flags = follow_forks_ ? DP_PROCESS_FOLLOW_FORKS : 0;
  if (python_) {
    process = python_->fill_bpf(flags | DP_PROCESS_PYTHON);
    if (torch_.layout.compile_id_type) {
      process.torch = torch_.layout;
      process.flags |= DP_PROCESS_TORCH;
    }
  } else {
    process.flags = flags;
  }
  if (native_space_) {
    process.native_space = native_space_->slot;
    process.native_owner = native_space_->owner;
  }
  return process;
}

Result<void> FollowedProcess::introduce(KernelSide& kernel) const {
  return kernel.set_process(static_cast<std::uint32_t>(pid_), kernel_view());
}

Result<void> FollowedProcess::tell_kernel(KernelSide& kernel) const {
  return kernel.update_process(static_cast<std::uint32_t>(pid_), kernel_view());
}

void FollowedProcess::runs(std::string_view comm, std::string_view exe,
                           std::string_view command_line) {
  comm_ = comm;
  exe_ = exe;
  command_line_ = command_line;
  while (!command_line_.empty() && command_line_.back() == '\0') command_line_.pop_back();
  std::replace(command_line_.begin(), command_line_.end(), '\0', ' ');
}

void FollowedProcess::learn(std::span<const CodeRequest> codes, RecordingWriter& writer,
                            KernelSide& kernel) {
  if (!access_) return;
  codes_.learn(codes, access_->reader, writer, python_->layout.python,
               [&](const RemoteCode& remote) {
                 if (auto marker = match_marker(access_->reader, remote, python_->layout.python)) {
                   add_marker(*marker, kernel);
                   // The first sight of a marker says that torch is there by now.
                   if (!torch_.complete) next_look_ns_ = 1;
                   return;
                 }
                 dp_marker_code plain = {};
                 plain.identity = remote.identity;
                 kernel.add_code(static_cast<std::uint32_t>(pid_), remote.address, plain);
               });
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
  tracing_backoff_ns_ = std::clamp(2 * tracing_backoff_ns_, kTracingLookNs, kSlowestLookNs);
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
  if (!lines_ && python_) lines_ = std::make_unique<LineWatch>(*python_);
  if (lines_) lines_->wake();
}

void FollowedProcess::compile_seen(const KernelSide& kernel) {
  if (!kernel.may_probe()) compile_goes_on();
}

void FollowedProcess::write_lines(RecordingWriter& writer) {
  if (!lines_) return;
  const CompileReadings readings = lines_->take();
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
  }
  for (const LockReading& reading : readings.locks) {
    writer.lock_sample(
        {reading.time_ns, reading.weight_ns, thread(reading.tid, writer), reading.holder});
  }
}

void FollowedProcess::refresh_facts(std::uint64_t now_ns) {
  if (!access_ || torch_.version.empty()) return;
  facts_.read_note(access_->objects, *python_, now_ns);
  facts_.refresh(*python_, now_ns);
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

std::string FollowedProcess::take_problem() {
  if (eval_ranges_ && eval_ranges_->empty() && !told_stripped_) {
    told_stripped_ = true;
    return fmt::format(
        "{} has no symbol for the interpreter's loop: native frames are shown beside Python "
        "frames, "
        "not among them",
        escape_terminal(python_ ? python_->image_path : "the interpreter"));
  }
  if (waits_for_descriptors_ && !python_ && !told_descriptors_) {
    told_descriptors_ = true;
    return fmt::format(
        "process {} is examined again every second: too many files are open (raise ulimit -Hn)",
        pid_);
  }
  std::string problem = probes_.take_problem();
  return problem.empty() ? watch_.take_problem() : problem;
}

void FollowedProcess::end_watches(RecordingWriter& writer, KernelSide& kernel) {
  probes_.detach();
  if (auto process = watched(writer, kernel)) watch_.finish(*process, monotonic_ns());
}

void FollowedProcess::set_native_space(NativeSpaceRef space) {
  native_space_ = std::move(space);
  space_.set_kept(native_space_);
}

bool FollowedProcess::knows_eval_loop() {
  if (!python_) return false;
  if (!eval_ranges_) {
    auto found = EvalRanges::find(pid_, python_->image_path);
    if (!found) told_stripped_ = true;  // it has ended: not that
    eval_ranges_ = std::move(found).value_or(EvalRanges());
    // Addresses met before this was known to be Python were taken for other code.
    native_addresses_.clear();
  }
  return !eval_ranges_->empty();
}

NativeAddress FollowedProcess::native_address(std::uint64_t word, NativeFrames& native,
                                              std::uint64_t now_ns) {
  constexpr std::size_t kMaxAddresses = 1 << 20;
  const std::uint32_t version =
      native_space_ ? native_space_->version.load(std::memory_order_acquire) : 0;
  if (version != native_version_ || native_addresses_.size() >= kMaxAddresses) {
    // Another file may lie there now.
    native_addresses_.clear();
    space_.forget();
    native_version_ = version;
  }
  const bool knows_loop = knows_eval_loop();
  auto [at, added] = native_addresses_.try_emplace(word);
  if (added) {
    // A return address may lie behind the function that made the call.
    const std::uint64_t address = (word & DP_NATIVE_EXACT) ? word & ~DP_NATIVE_EXACT : word - 1;
    at->second.frame = native.user_frame(pid_, space_, address, now_ns);
    at->second.in_eval_loop = knows_loop && eval_ranges_->contains(address);
  }
  return at->second;
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

ThreadId FollowedProcess::thread(pid_t tid, RecordingWriter& writer) {
  auto [at, added] = threads_.try_emplace(tid, 0);
  if (added) {
    Thread thread;
    thread.pid = pid_;
    thread.tid = tid;
    const std::string comm = read_comm(pid_, tid);
    thread.comm = writer.string(comm.empty() && tid == pid_ ? comm_ : comm);  // it may have ended
    at->second = writer.thread(thread);
    if (threads_.size() == 1) described_ = false;
  }
  return at->second;
}

void FollowedProcess::describe(RecordingWriter& writer) {
  // A child that was never sampled needs no entry.
  if (described_ || threads_.empty()) return;
  Process process;
  process.pid = pid_;
  process.parent_pid = parent_;
  auto or_known = [&writer](const std::string& read, const std::string& known) {
    return writer.string(read.empty() ? known : read);
  };
  process.comm = or_known(read_comm(pid_, pid_), comm_);
  process.exe = or_known(read_exe(pid_), exe_);
  if (keep_command_line_) process.command_line = or_known(read_command_line(pid_), command_line_);
  if (python_) process.python = writer.string(python_->version);
  process.torch = writer.string(torch_.version);
  process.start_ns = parent_ ? first_seen_ns_ : 0;
  process.no_compile_at_start = no_compile_at_start_;
  writer.process(process);
  described_ = true;
}

}  // namespace dynprof
