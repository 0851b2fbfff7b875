#include "user/torch/torch_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "user/history/graph_breaks.h"
#include "user/target/clock.h"
#include "user/target/marker_rules.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kFirstBackoffNs = 10'000'000;
constexpr std::uint64_t kLongestBackoffNs = 1'000'000'000;
// A hit of a watchpoint is a debug exception: 1 us, 10 us in a virtual machine.
constexpr std::uint32_t kMaxHitsPerSecond = 10'000;
constexpr std::uint64_t kSecondNs = 1'000'000'000;
// Looks at a thread that goes on changing its list of phases, until two in a row are equal.
constexpr int kLooks = 8;
// Threads there are at attach whose watchpoints are set before they compile.
constexpr std::size_t kPreparedThreads = 16;
// Of an event that was read later than this, what the thread compiles by now says nothing, where its frame does
// not tell either.
constexpr std::uint64_t kFreshNs = 100'000'000;
constexpr std::uint64_t kMaxNewBreaks = 64;  // between two phases
constexpr std::uint64_t kListSize = 16;      // PyListObject.ob_size

// `ids`: read by the kernel side, or by us.
template <class Ids>
TorchState state_of(const Ids& ids) {
  TorchState state;
  state.status = TorchStatus::kRead;
  state.autograd_id = ids.autograd_id;
  state.frame_id = ids.frame_id;
  state.compile_id = ids.compile_id;
  state.attempt = ids.attempt;
  return state;
}

std::uint32_t line_number(std::int64_t line) {
  return line > 0 && line <= INT32_MAX ? static_cast<std::uint32_t>(line) : 0;
}

// A compile begins with it, maybe inside another one.
bool begins_compile(std::string_view phase) {
  return phase == "dynamo" || phase == "entire_backward_compile";
}

// Asked after the ids were read: then these are of the compile that the phase belongs to.
bool is_still_open(const WatchedProcess& process, const dp_phase_event& event) {
  const std::uint64_t now_ns = monotonic_ns();
  std::optional<bool> open;
  if (event.edge == DP_PHASE_BEGIN)
    open = is_phase_open(process.objects, process.python, process.torch.phase_functions, event,
                         realtime_offset_ns());
  return open.value_or(now_ns - event.header.time_ns <= kFreshNs);
}

}  // namespace

TorchState recorded_state(const dp_torch_state& torch) {
  if (torch.status != DP_TORCH_READ) {
    TorchState stale;
    stale.status = TorchStatus::kStale;
    return stale;
  }
  return state_of(torch);
}

void TorchWatch::note_open_phases(RemoteObjects& objects, const PythonRuntime& python,
                                  const dp_torch_layout& torch) {
  if (torch.break_list && !breaks_)
    breaks_ = objects.memory().read<std::uint64_t>(torch.break_list + kListSize);
  locals_ = find_torch_locals(objects, python);
  if (locals_.guards == 0 && locals_.event_log == 0) return;
  for (auto [tid, tstate] : thread_states(objects, python)) {
    const dp_torch_thread place = find_torch_thread(objects, locals_, tstate);
    std::optional<TorchThreadState> state;
    std::uint64_t since_ns = 0;
    for (int i = 0; i < kLooks && place.phases.entry; ++i) {
      const std::uint64_t before_ns = monotonic_ns();
      auto now = read_torch_thread(objects, place, python.none);
      if (!now) continue;
      if (state && state->phases == now->phases) break;
      state = std::move(now);
      since_ns = before_ns;
    }
    if (!state || state->phases.empty()) continue;
    Thread& thread = threads_[tid];
    thread.since_ns = since_ns;
    thread.noted = std::move(state->phases);
    auto ids = read_compile_context(objects, torch, python.none, state->context);
    if (ids) thread.noted_state = state_of(*ids);
  }
}

void TorchWatch::prepare_inlined(RemoteObjects& objects, const PythonRuntime& python,
                                 const dp_torch_layout& torch, KernelSide& kernel) {
  if (torch.inline_code == 0) return;
  std::size_t prepared = 0;
  for (auto [tid, tstate] : thread_states(objects, python)) {
    if (++prepared > kPreparedThreads) return;
    tell_inlined(threads_[tid].inlined.prepare(tid, torch, kernel));
  }
}

void TorchWatch::tell_inlined(const Result<void>& result) {
  if (result) return;
  tell_once(told_inline_,
            fmt::format("{}: how often Dynamo traced a user function comes from samples",
                        result.error().what));
}

void TorchWatch::look_at_all(const WatchedProcess& process) {
  locals_ = find_torch_locals(process.objects, process.python);
  if (locals_.guards == 0 && locals_.event_log == 0) return;
  for (auto [tid, tstate] : thread_states(process.objects, process.python))
    look(process, tid, tstate);
  for (auto& [tid, thread] : threads_)
    if (!thread.noted.empty()) write_open_phases(process, tid, thread);
}

void TorchWatch::look_at(const WatchedProcess& process, pid_t tid, std::uint64_t now_ns) {
  Thread& thread = threads_[tid];
  if (now_ns < thread.next_look_ns) return;
  if (!locals_.complete()) locals_ = find_torch_locals(process.objects, process.python);
  auto states = thread_states(process.objects, process.python);
  auto at = states.find(tid);
  if (at != states.end() && (locals_.guards || locals_.event_log)) look(process, tid, at->second);
  // Not all of it may be there yet: the list is made when the thread's first phase begins.
  thread.backoff_ns = std::clamp(thread.backoff_ns * 2, kFirstBackoffNs, kLongestBackoffNs);
  thread.next_look_ns = now_ns + thread.backoff_ns;
}

void TorchWatch::look(const WatchedProcess& process, pid_t tid, std::uint64_t tstate) {
  dp_torch_thread found = find_torch_thread(process.objects, locals_, tstate);
  if (found.context.entry == 0 && found.phases.entry == 0) return;
  Thread& thread = threads_[tid];
  thread.complete = found.context.entry != 0 && found.phases.entry != 0;
  found.pid = static_cast<std::uint32_t>(process.python.pid);
  thread.place = found;
  process.kernel.set_torch_thread(static_cast<std::uint32_t>(tid), found);
}

void TorchWatch::write_open_phases(const WatchedProcess& process, pid_t tid, Thread& thread) {
  Context context;
  context.torch = thread.noted_state;
  context.torch.status = TorchStatus::kRead;
  std::vector<StringId> names;
  for (const std::string& phase : thread.noted) {
    names.push_back(process.writer.string(phase));
    thread.inlined.phase_begins(phase);
  }
  thread.noted.clear();
  thread.phases.set(names);
  context.torch.phases = names;
  SpanEdge edge;
  edge.time_ns = thread.since_ns;
  edge.thread = process.thread(tid);
  edge.kind = EdgeKind::kWatchBegin;
  edge.depth = static_cast<std::uint32_t>(names.size());
  edge.context = thread.context = process.writer.context(context);
  process.writer.edge(edge);
  update_inlined(process, tid, thread, thread.since_ns);
}

// The kernel side read it, or (a thread's first phases) we do now: but inside a phase that is open it is what it
// was, and the thread may compile something else by now.
ContextId TorchWatch::context(const WatchedProcess& process, const dp_phase_event& event,
                              std::string_view name, Thread& thread) {
  Context context;
  context.torch = recorded_state(event.torch);
  if (event.torch.status == 0) {
    if (!thread.phases.empty() && (event.edge == DP_PHASE_END || !begins_compile(name)))
      return thread.context;
    context.torch = {};
    auto state = read_torch_thread(process.objects, thread.place, process.python.none);
    auto ids = state && state->context ? read_compile_context(process.objects, process.torch,
                                                              process.python.none, state->context)
                                       : std::nullopt;
    if (ids && is_still_open(process, event)) context.torch = state_of(*ids);
  }
  return process.writer.context(context);
}

bool TorchWatch::on_phase(const WatchedProcess& process, const dp_phase_event& event,
                          std::string_view name) {
  const auto tid = static_cast<pid_t>(event.header.tid);
  Thread& thread = threads_[tid];
  if (event.header.time_ns < thread.since_ns) return false;
  if (event.torch.status == DP_TORCH_STALE) thread.next_look_ns = 0;
  if (event.torch.status == DP_TORCH_STALE || !thread.complete)
    look_at(process, tid, monotonic_ns());
  SpanEdge edge;
  edge.time_ns = event.header.time_ns;
  edge.thread = process.thread(tid);
  edge.cpu_ns = event.cpu_ns;
  edge.context = thread.context = context(process, event, name, thread);
  if (event.torch.status == DP_TORCH_READ && event.torch.open_phases != DP_OPEN_PHASES_UNKNOWN)
    lost_ += thread.phases.drop_ended(event.torch.open_phases);
  const bool traced = thread.inlined.tracing();
  if (event.edge == DP_PHASE_BEGIN)
    phase_begins(process, event, name, edge, thread);
  else
    phase_ends(process, event, name, edge, thread);
  update_inlined(process, tid, thread, edge.time_ns);
  if (!traced && thread.inlined.tracing() && thread.inlined.late(edge.time_ns)) armed_late_++;
  return event.edge == DP_PHASE_END && thread.phases.empty();
}

bool TorchWatch::compiling() const {
  return std::any_of(threads_.begin(), threads_.end(),
                     [](const auto& thread) { return !thread.second.phases.empty(); });
}

void TorchWatch::phase_begins(const WatchedProcess& process, const dp_phase_event& event,
                              std::string_view name, SpanEdge edge, Thread& thread) {
  edge.kind = EdgeKind::kPhaseBegin;
  edge.name = process.writer.string(name);
  if (!thread.phases.begin(event.frame, edge.name)) lost_++;
  edge.depth = static_cast<std::uint32_t>(thread.phases.size());
  process.writer.edge(edge);
  thread.inlined.phase_begins(name);
}

void TorchWatch::phase_ends(const WatchedProcess& process, const dp_phase_event& event,
                            std::string_view name, SpanEdge edge, Thread& thread) {
  take_breaks(process, event, edge, thread);
  edge.kind = EdgeKind::kPhaseEnd;
  edge.name = process.writer.string(name);
  auto ended = thread.phases.end(event.frame, edge.name);
  if (!ended) {
    lost_++;
    return;
  }
  lost_ += ended->lost;
  edge.name = ended->name;
  edge.depth = static_cast<std::uint32_t>(ended->depth);
  leave_inlined(process, static_cast<pid_t>(event.header.tid), thread,
                thread.inlined.calls.within(thread.phases.size()), edge.time_ns);
  process.writer.edge(edge);
  thread.inlined.phase_ends(name, thread.phases.empty());
}

// Torch notes each graph break at the end of a list, in the thread that traces, and then ends a phase.
void TorchWatch::take_breaks(const WatchedProcess& process, const dp_phase_event& event,
                             const SpanEdge& edge, const Thread& thread) {
  if (event.breaks == DP_NO_BREAKS) return;
  const std::uint64_t known =
      std::min<std::uint64_t>(breaks_.value_or(0), event.breaks);  // less: they were reset
  if (!thread.inlined.wanted() && thread.phases.size() > 1) return;
  breaks_ = event.breaks;
  RemoteValues values(process.objects, process.python);
  for (std::uint64_t i = known; i < std::min<std::uint64_t>(event.breaks, known + kMaxNewBreaks);
       ++i) {
    GraphBreak found{edge.time_ns, edge.thread, edge.context, 0, {}};
    if (auto cause = read_graph_break_at(values, process.torch.break_list, i)) {
      found.reason = process.writer.string(cause->reason);
      for (const UserFrame& call : cause->stack) {
        found.calls.push_back({process.writer.string(call.file), line_number(call.line),
                               process.writer.string(call.function)});
      }
    }
    process.writer.graph_break(found);
  }
}

void TorchWatch::update_inlined(const WatchedProcess& process, pid_t tid, Thread& thread,
                                std::uint64_t time_ns) {
  if (auto updated = thread.inlined.update(tid, process.torch, process.kernel, time_ns); !updated) {
    tell_once(told_inline_,
              fmt::format("{}: how often Dynamo traced a user function comes from samples",
                          updated.error().what));
  }
  if (!thread.inlined.wanted()) leave_inlined(process, tid, thread, 0, time_ns);
}

// All but `keep` of the user functions under way were left by an exception.
void TorchWatch::leave_inlined(const WatchedProcess& process, pid_t tid, Thread& thread,
                               std::size_t keep, std::uint64_t now_ns) {
  while (thread.inlined.calls.size() > keep) {
    SpanEdge edge;
    edge.time_ns = now_ns;
    edge.thread = process.thread(tid);
    edge.context = thread.context;
    edge.kind = EdgeKind::kInlineEnd;
    edge.depth = static_cast<std::uint32_t>(thread.inlined.calls.size());
    edge.name = process.writer.string("raised");
    process.writer.edge(edge);
    thread.inlined.calls.pop();
  }
}

void TorchWatch::on_inline(const WatchedProcess& process, const dp_inline_event& event,
                           CodeId code) {
  auto tid = static_cast<pid_t>(event.header.tid);
  auto at = threads_.find(tid);
  if (at == threads_.end()) return;
  Thread& thread = at->second;
  const std::uint64_t now_ns = event.header.time_ns;
  if (now_ns / kSecondNs != std::exchange(thread.second, now_ns / kSecondNs)) thread.hits = 0;
  if (++thread.hits > kMaxHitsPerSecond) {
    leave_inlined(process, tid, thread, 0, now_ns);
    thread.inlined.close();
    return tell_once(told_inline_, fmt::format("Dynamo traces more than {} user functions a "
                                               "second: they are no longer counted one by one",
                                               kMaxHitsPerSecond));
  }
  SpanEdge edge;
  edge.time_ns = now_ns;
  edge.thread = process.thread(tid);
  edge.context = thread.context;
  edge.cpu_ns = event.cpu_ns;
  InlinedCalls& open = thread.inlined.calls;
  if (event.begin) {
    if (open.is_repeat(event)) return;
    leave_inlined(process, tid, thread, open.around(event), now_ns);
    open.push(event, thread.phases.size());
    edge.kind = EdgeKind::kInlineBegin;
    edge.code = code;
  } else {
    std::size_t keep = open.with(event);
    if (keep == 0) return;  // it began before we watched
    leave_inlined(process, tid, thread, keep, now_ns);
    edge.kind = EdgeKind::kInlineEnd;
    open.pop();
  }
  edge.depth = static_cast<std::uint32_t>(open.size() + (event.begin ? 0 : 1));
  process.writer.edge(edge);
}

void TorchWatch::finish(const WatchedProcess& process, std::uint64_t now_ns) {
  for (auto& [tid, thread] : threads_) {
    leave_inlined(process, tid, thread, 0, now_ns);
    thread.inlined.close();
    if (thread.phases.empty()) continue;
    thread.phases.clear();
    SpanEdge edge;
    edge.time_ns = now_ns;
    edge.thread = process.thread(tid);
    edge.kind = EdgeKind::kWatchEnd;
    process.writer.edge(edge);
  }
}

void TorchWatch::tell_once(bool& told, std::string problem) {
  if (!std::exchange(told, true)) problem_ = std::move(problem);
}

std::string TorchWatch::take_problem() { return std::exchange(problem_, {}); }

}  // namespace dynprof
