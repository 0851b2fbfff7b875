#include "user/process/torch_tracer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "symbolizer/base/text.h"
#include "user/target/backward_nodes.h"
#include "user/target/clock.h"
#include "user/target/marker_rules.h"
#include "user/target/torch_lacks.h"
#include "user/target/torch_worker.h"
#include "user/torch/compile_progress.h"

namespace dynprof {
namespace {

// A compile moves on while it is read. At the begin its line is not needed: there are many readings to come.
constexpr std::chrono::milliseconds kPatienceAtBegin{10}, kPatienceAtEnd{300};

}  // namespace

void TorchTracer::forget() {
  watch_ = {};
  probes_ = {};
  annotations_ = {};
  facts_ = {};
  lines_.reset();
  triton_.reset();
  compile_worker_.reset();
}

bool TorchTracer::is_compile_worker() const {
  if (!compile_worker_) compile_worker_ = read_purpose(process_.identity.pid()) == Purpose::kWorker;
  return *compile_worker_;
}

std::optional<WatchedProcess> TorchTracer::watched(RecordingWriter& writer) const {
  const dp_torch_layout& layout = process_.torch.torch().layout;
  if (!process_.python || !layout.compile_context_type) return std::nullopt;
  return WatchedProcess{process_.python.objects(), process_.python.runtime(),  layout, writer,
                        process_.kernel,           process_.identity.threads()};
}

void TorchTracer::attach_probes() {
  if (!process_.kernel.may_probe() || !has_torch() || probes_.attached()) return;
  RemoteObjects& objects = process_.python.objects();
  const PythonRuntime& python = process_.python.runtime();
  const bool saw_phases = probes_.sees_phases();
  const bool complete = probes_.attach(process_.kernel, objects, python);
  if (probes_.sees_phases() && !saw_phases) {
    const dp_torch_layout& layout = process_.torch.torch().layout;
    watch_.note_open_phases(objects, python, layout);
    watch_.prepare_inlined(objects, python, layout, process_.kernel);
  }
  if (!complete) return;
  annotations_.attach(process_.kernel, python.pid, process_.record_functions);
  process_.torch.set_probed(probes_.functions());
  if (probes_.functions().region.begin || probes_.functions().node.begin)
    runs_.begin(process_.identity.pid(), monotonic_ns());
  (void)process_.entry.update();
}

void TorchTracer::watch_threads(RecordingWriter& writer) {
  attach_probes();
  if (auto process = watched(writer)) watch_.look_at_all(*process);
}

void TorchTracer::look_for_more() {
  if (process_.torch.look_while_compiling(monotonic_ns())) (void)process_.entry.update();
}

void TorchTracer::watch_thread(pid_t tid, RecordingWriter& writer) {
  look_for_more();
  if (auto process = watched(writer)) watch_.look_at(*process, tid, monotonic_ns());
}

// Code that was not known calls time.time_ns. True: it is torch's, and the kernel side knows its
// functions from here on.
bool TorchTracer::look_for_phases(const dp_phase_event& event) {
  if (!process_.python) return false;
  const RemoteCode code = process_.python.code_reader().read(event.code);
  if (!is_phase_function(code, process_.python.runtime().layout.python)) {
    process_.python.add_plain_code(event.code, code.identity);
    return false;
  }
  process_.torch.look(monotonic_ns());
  (void)process_.entry.update();
  return process_.torch.torch().layout.phase_functions[0].code != 0;
}

void TorchTracer::on(const dp_phase_event& event, RecordingWriter& writer) {
  if (event.edge == DP_PHASE_TOO_OFTEN) {
    probes_.give_up_clock(process_.identity.pid());
    facts_.not_told_any_more();
    if (auto process = watched(writer)) watch_.finish(*process, event.header.time_ns);
    return;
  }
  dp_phase_event seen = event;
  std::string name(event.name, event.name_size);
  if (event.edge == DP_PHASE_UNKNOWN) {
    // The first phase of all: its frame is still there, unless it was very short.
    if (!look_for_phases(event)) return;
    auto phase = read_phase_frame(process_.python.objects(),
                                  process_.torch.torch().layout.phase_functions, event);
    if (!phase) return;
    seen.edge = phase->edge;
    name = std::move(phase->name);
  } else if (auto fixed = fixed_phase_name(event.function); !fixed.empty()) {
    name = fixed;
    seen.frame = 0;  // one function begins it, another ends it: they have no frame in common
  }
  if (seen.edge == DP_PHASE_END) facts_.compiled(event.header.time_ns);
  compile_goes_on();
  look_for_more();
  auto process = watched(writer);
  if (process && watch_.on_phase(*process, seen, name)) facts_.compile_ended(event.header.time_ns);
}

void TorchTracer::on(const dp_inline_event& event, RecordingWriter& writer) {
  auto process = watched(writer);
  if (!process) return;
  CodeId code = 0;
  if (event.begin && event.code) {
    const CodeRequest request{event.code, event.identity};
    process_.python.learn({&request, 1}, writer);
    code = process_.python.code(event.code, event.identity);
  }
  watch_.on_inline(*process, event, code);
}

// What an autograd node that begins to run is; "" for one that runs no compiled code.
std::string TorchTracer::node_name(const dp_probe_event& event) {
  if (event.probe != DP_PROBE_NODE_BEGIN || !process_.python) return {};
  const PythonRuntime& python = process_.python.runtime();
  const dp_torch_layout& layout = process_.torch.torch().layout;
  // A class is identified by its contents: its address may have been reused.
  RemoteValues& values = process_.python.values();
  if (event.object) return backward_run_name(values, layout, python.none, event.object);
  const auto* const type = std::find_if(
      std::begin(event.types), std::end(event.types),
      [&](std::uint64_t one) { return is_node_class(process_.python.objects(), one); });
  const bool found = type != std::end(event.types);
  // Events that were on their way meanwhile change nothing.
  if (event.first_word == process_.torch.searched_node_words()) {
    process_.torch.set_node_object(
        static_cast<std::uint16_t>(found ? event.first_word + 8 * (type - event.types)
                                         : node_words_after(event.first_word) | DP_NODE_SEARCHED));
    (void)process_.entry.update();
  }
  return found ? backward_run_name(values, layout, python.none, *type) : std::string();
}

void TorchTracer::on(const dp_probe_event& event, RecordingWriter& writer) {
  const auto pid = static_cast<pid_t>(event.header.pid);
  if (event.probe == DP_PROBE_NOT_SENT) return probes_.give_up_events(pid, event.object);
  if (event.probe == DP_PROBE_NOT_TIMED) {
    probes_.give_up_lengths(pid, event.object);
    return runs_.lengths_end(event.header.time_ns, describe_runs(writer), writer);
  }
  if (event.probe == DP_PROBE_NOT_COUNTED) {
    probes_.give_up_runs();
    return runs_.end(event.header.time_ns, RunsThen::kNotCounted, describe_runs(writer), writer);
  }
  const auto tid = static_cast<pid_t>(event.header.tid);
  const std::string name = node_name(event);
  // Until it is known where a node has its class, it is not counted.
  if (event.probe == DP_PROBE_NODE_BEGIN && event.object == 0 && !name.empty()) runs_.add_one(name);
  probes_.on_run(event, name, process_.identity.threads().of(tid, writer), writer);
}

void TorchTracer::on(const dp_annotation_event& event, RecordingWriter& writer) {
  const auto tid = static_cast<pid_t>(event.header.tid);
  annotations_.on(event, process_.identity.threads().of(tid, writer), writer);
}

RunCounts::Describe TorchTracer::describe_runs(RecordingWriter& writer) {
  return [this, &writer](const dp_region_key& key) -> RunCounts::Region {
    if (!process_.python) return {};
    if (key.probe == DP_PROBE_NODE_BEGIN) {
      const PythonRuntime& python = process_.python.runtime();
      return {backward_run_name(process_.python.values(), process_.torch.torch().layout,
                                python.none, key.code),
              0};
    }
    RunCounts::Region region{region_name(key), 0};
    const auto identity = process_.python.code_reader().identity_of(key.code);
    if (!identity) return region;
    const CodeRequest request{key.code, *identity};
    process_.python.learn({&request, 1}, writer);
    region.code = process_.python.code(key.code, *identity);
    return region;
  };
}

void TorchTracer::runs_ended(std::uint64_t time_ns, RecordingWriter& writer) {
  runs_.end(time_ns, RunsThen::kCounted, describe_runs(writer), writer);
  annotations_.finish(time_ns, writer);
}

void TorchTracer::compile_goes_on() {
  if (!lines_ && process_.python)
    lines_ = std::make_unique<LineWatch>(process_.python.runtime(), process_.user_packages,
                                         process_.all_user_lines);
  if (lines_) lines_->wake();
}

void TorchTracer::seen(Sighting what, pid_t tid, std::uint64_t now_ns) {
  if (what == Sighting::kCompile) {
    if (!process_.kernel.may_probe()) compile_goes_on();
    return;
  }
  if (!triton_ && process_.python)
    triton_ = std::make_unique<TritonWatch>(process_.python.runtime());
  if (triton_) triton_->seen(tid, now_ns);
}

void TorchTracer::write_lines(RecordingWriter& writer) {
  if (!lines_) return;
  ThreadIds& threads = process_.identity.threads();
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
    sample.thread = threads.of(reading.tid, writer);
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
        {reading.time_ns, reading.weight_ns, threads.of(reading.tid, writer), reading.holder});
  }
}

void TorchTracer::write_triton(RecordingWriter& writer) {
  if (!triton_) return;
  for (const TritonReading& reading : triton_->take())
    writer.triton_sample(
        {.time_ns = reading.time_ns,
         .thread = process_.identity.threads().of(reading.tid, writer),
         .compilation = compilations_.number(reading.tid, reading.kernel.compilation),
         .kernel = writer.string(reading.kernel.name)});
}

// Where phases are watched they say so. A job may have hundreds of processes that import torch and compile nothing.
bool TorchTracer::may_compile() const {
  return has_torch() && (!probes_.sees_phases() || watch_.compiling());
}

void TorchTracer::write_progress(std::chrono::milliseconds patience, RecordingWriter& writer) {
  write_compile_progress(
      read_compile_progress(process_.python.runtime(), process_.user_packages, patience),
      process_.identity.threads(), writer);
}

// Only those that are new: a name seldom changes.
void TorchTracer::write_thread_names(std::map<pid_t, std::string>& names, RecordingWriter& writer) {
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
  writer.fact({.pid = process_.identity.pid(),
               .time_ns = monotonic_ns(),
               .kind = writer.string("threads"),
               .body = writer.blob(changed.dump())});
}

void TorchTracer::begin(RecordingWriter& writer) {
  watch_threads(writer);
  if (may_compile()) write_progress(kPatienceAtBegin, writer);
  if (has_torch()) facts_.refresh_at_attach(process_.python.objects(), process_.python.runtime());
  facts_.write_at_attach(process_.identity.pid(), writer);
}

std::uint64_t TorchTracer::tick(std::uint64_t now_ns, RecordingWriter& writer) {
  write_lines(writer);
  write_triton(writer);
  runs_.tick(now_ns, describe_runs(writer), writer);
  if (has_torch()) {
    facts_.read_note(process_.python.objects(), process_.python.runtime(), now_ns);
    facts_.refresh(process_.python.runtime(), now_ns, watch_.compiling());
  }
  return facts_.note_due_ns();
}

bool TorchTracer::finish(RecordingWriter& writer, bool in_thread) {
  write_lines(writer);
  write_triton(writer);
  finished_ = true;
  runs_ended(monotonic_ns(), writer);
  const bool compiling = may_compile();
  probes_.detach();
  annotations_.detach();
  if (auto process = watched(writer)) watch_.finish(*process, monotonic_ns());
  if (compiling) write_progress(kPatienceAtEnd, writer);
  if (!has_torch()) return false;
  facts_.refresh_at_end(process_.python.objects(), process_.python.runtime(), in_thread);
  return in_thread;
}

void TorchTracer::image_ended(RecordingWriter& writer) {
  if (!finished_) {  // what was read since then is of a time after the recording
    write_lines(writer);
    write_triton(writer);
  }
  facts_.stop_reading();
  facts_.write_at_end(process_.identity.pid(), writer);
}

std::vector<std::string> TorchTracer::lacks() const {
  if (!has_torch()) return {};
  return torch_lacks(process_.python.objects(), process_.python.runtime());
}

std::string TorchTracer::take_problem() {
  std::string problem = probes_.take_problem();
  if (problem.empty()) problem = annotations_.take_problem();
  return problem.empty() ? watch_.take_problem() : problem;
}

}  // namespace dynprof
