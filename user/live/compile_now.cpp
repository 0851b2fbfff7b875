#include "user/live/compile_now.h"

#include "symbolizer/attribution/torch_phases.h"
#include "symbolizer/attribution/torch_states.h"
#include "user/target/marker_rules.h"

namespace dynprof {
namespace {

constexpr std::string_view kConvertFrame = "torch/_dynamo/convert_frame.py";
constexpr std::string_view kCompiledAutograd = "torch/_dynamo/compiled_autograd.py";

// The kind of the innermost compile that is open, by torch's names.
std::optional<CompileKind> kind_of(const std::vector<std::string>& phases) {
  for (auto name = phases.rbegin(); name != phases.rend(); ++name) {
    auto phase = find_torch_phase(*name);
    if (auto kind = phase ? dynprof::kind_of(phase->role) : std::nullopt) return kind;
  }
  return std::nullopt;
}

std::optional<Phase> phase_of(const std::vector<std::string>& phases) {
  for (auto name = phases.rbegin(); name != phases.rend(); ++name) {
    if (auto phase = find_torch_phase(*name)) return phase->phase;
  }
  return std::nullopt;
}

}  // namespace

TorchReader::TorchReader(TargetView& view) : view_(view) {
  torch_ = resolve_torch(view.objects, view.runtime);
  if (!torch_) return;
  layout_ = torch_->layout;
  locals_ = find_torch_locals(view.objects, view.runtime);
  auto utils = view.objects.find_module(view.runtime.main_interpreter, "torch._dynamo.utils");
  if (!utils) return;
  auto local = view.objects.module_get(*utils, "_metrics_context_tls");
  if (local && view.values.is_a(*local, "_thread._local")) metrics_local_ = *local;
  auto shared = view.objects.module_get(*utils, "_METRICS_CONTEXT");
  if (shared && view.values.is_a(*shared, "MetricsContext")) metrics_shared_ = *shared;
}

std::optional<std::int64_t> TorchReader::int_attribute(std::uint64_t object,
                                                       std::string_view name) {
  auto value = view_.values.attribute(object, name);
  return value ? view_.values.read_int(*value) : std::nullopt;
}

void TorchReader::read_metrics(std::uint64_t context, TorchMoment& moment) {
  if (context == 0 || !view_.values.is_a(context, "MetricsContext")) return;
  auto level = int_attribute(context, "_level");
  auto start = int_attribute(context, "_start_time_ns");
  if (!level || !start) return;
  moment.level = *level;
  moment.start_ns = *start;
}

// Without an entry: the thread never compiled.
dp_torch_thread TorchReader::find(std::uint64_t tstate) {
  if (!torch_ || (locals_.guards == 0 && locals_.event_log == 0)) return {};
  return find_torch_thread(view_.objects, locals_, tstate);
}

void TorchReader::read_ids(std::uint64_t context, TraceId& id, std::int32_t& attempt, bool& torn) {
  if (context == 0) return;
  auto ids = read_compile_context(view_.objects, layout_, view_.runtime.none, context);
  torn = !ids;
  if (!ids) return;
  id = {ids->autograd_id, ids->frame_id, ids->compile_id};
  attempt = ids->attempt;
}

TorchMoment TorchReader::read(std::uint64_t tstate) {
  TorchMoment moment;
  const dp_torch_thread thread = find(tstate);
  if (thread.context.entry == 0 && thread.phases.entry == 0) return moment;
  auto state = read_torch_thread(view_.objects, thread, view_.runtime.none);
  if (!state) {
    moment.torn = true;
    return moment;
  }
  moment.phases = std::move(state->phases);
  read_ids(state->context, moment.id, moment.attempt, moment.torn);
  if (!moment.compiling()) return moment;
  read_metrics(metrics_local_
                   ? thread_local_value(view_.objects, metrics_local_, tstate, "metrics_context")
                   : metrics_shared_,
               moment);
  return moment;
}

TorchOpenCompile TorchReader::read_open(pid_t tid, std::uint64_t tstate) {
  TorchOpenCompile open;
  dp_torch_thread& place = places_[{tid, tstate}];
  auto read = [&] { return read_torch_thread_ids(view_.objects, place, view_.runtime.none); };
  auto found = place.context.entry && place.phases.entry ? read() : std::nullopt;
  if (!found) {  // not known yet, or the thread's dict has moved
    place = find(tstate);
    if (place.context.entry == 0 && place.phases.entry == 0) return open;
    found = read();
  }
  if (!found) {
    open.torn = true;
    return open;
  }
  open.in_phase = found->open_phases != 0;
  read_ids(found->context, open.id, open.attempt, open.torn);
  return open;
}

TraceId TorchReader::id_of(std::uint64_t compile_id) {
  if (view_.objects.type_of(compile_id) != layout_.compile_id_type) return {};
  auto number = [&](const dp_path& path) {
    auto value = follow_path(view_.memory(), compile_id, path);
    auto read =
        value && *value != view_.runtime.none ? view_.objects.read_int(*value) : std::nullopt;
    return read && *read >= 0 && *read <= INT32_MAX ? static_cast<std::int32_t>(*read) : -1;
  };
  TraceId id{number(layout_.id_autograd), number(layout_.id_frame), number(layout_.id_compile)};
  return is_valid(id) ? id : TraceId{};
}

// From the root on: the innermost compile is the one that counts.
void TorchReader::from_frames(const RemoteStack& stack, CompileNow& compile) {
  for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame) {
    for (const MarkerRule& rule : marker_rules()) {
      if (!view_.is_function(*frame, rule.file, rule.qualname)) continue;
      auto local = view_.local(*frame, rule.local);
      if (!local || local->value == view_.runtime.none) continue;
      if (rule.kind == DP_MARKER_COMPILE) {
        TraceId id = id_of(local->value);
        if (!is_valid(id)) continue;
        compile.id = id;
        compile.attempt = -1;
        compile.kind = CompileKind::kForward;
      } else if (rule.kind == DP_MARKER_BACKWARD) {
        auto ids = read_compile_context(view_.objects, layout_, view_.runtime.none, local->value);
        TraceId id = ids ? TraceId{ids->autograd_id, ids->frame_id, ids->compile_id} : TraceId{};
        if (!is_valid(id)) continue;
        compile.id = id;
        compile.attempt = ids->attempt;
        compile.kind = CompileKind::kBackward;
      } else if (rule.kind == DP_MARKER_ATTEMPT) {
        auto attempt = view_.values.read_int(local->value);
        if (attempt && *attempt >= 0 && *attempt <= INT32_MAX)
          compile.attempt = static_cast<std::int32_t>(*attempt);
      }
    }
  }
}

std::optional<std::int64_t> TorchReader::start_of(const TorchMoment& moment,
                                                  const CompileNow& compile,
                                                  const RemoteStack& stack) {
  if (compile.kind == CompileKind::kCompiledAutograd) {
    for (const StackFrame& frame : stack.frames) {
      const RemoteCode& code = view_.names.of(frame);
      if (!code.filename.ends_with(kCompiledAutograd)) continue;
      auto self = view_.local(frame, "self");
      if (self && view_.values.is_a(self->value, "AutogradCompilerInstance"))
        return int_attribute(self->value, "start_time_ns");
    }
    return std::nullopt;
  }
  if (moment.level == 1) return moment.start_ns;
  if (compile.kind != CompileKind::kForward) return std::nullopt;
  for (const StackFrame& frame : stack.frames) {
    if (!view_.is_function(frame, kConvertFrame, "_compile")) continue;
    auto start = view_.local(frame, "start_time_ns");
    return start ? view_.values.read_int(start->value) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<CompileNow> TorchReader::describe(const TorchMoment& moment, const RemoteStack& stack,
                                                std::int64_t now_ns) {
  if (!torch_) return std::nullopt;
  CompileNow compile;
  compile.id = moment.id;
  compile.attempt = moment.attempt;
  compile.phases = moment.phases;
  compile.phase = phase_of(moment.phases);
  if (is_valid(moment.id)) {
    compile.kind = kind_of(moment.phases);
  } else {
    from_frames(stack, compile);
  }
  if (!is_valid(compile.id)) {
    compile.attempt = -1;
    compile.kind.reset();
    if (compile.phases.empty()) return std::nullopt;
    return compile;
  }
  // Without torch's list of phases: what the frames say.
  if (!compile.kind) {
    CompileNow by_frames;
    from_frames(stack, by_frames);
    if (by_frames.id == compile.id) compile.kind = by_frames.kind;
  }
  auto start = start_of(moment, compile, stack);
  constexpr std::int64_t kEarliest = 1'000'000'000'000'000'000;  // 2001
  if (start && *start >= kEarliest && *start <= now_ns) {
    compile.seconds = static_cast<double>(now_ns - *start) / 1e9;
  }
  return compile;
}

}  // namespace dynprof
