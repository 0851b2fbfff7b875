#include "user/collector/torch_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "user/collector/clock.h"
#include "user/collector/perf_event.h"
#include "user/history/graph_breaks.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kFirstBackoffNs = 10'000'000;
constexpr std::uint64_t kLongestBackoffNs = 1'000'000'000;
// A hit is a debug exception: 1 us, 10 us in a virtual machine. Torch makes a few hundred a compile.
constexpr std::uint32_t kMaxHitsPerSecond = 10'000;
constexpr std::uint64_t kSecondNs = 1'000'000'000;
// A thread without a phase for so long does not compile any more.
// Long, since its next compile may be noticed some milliseconds late.
constexpr std::uint64_t kRestAfterNs = 30'000'000'000;
// Looks at a thread that goes on changing its list of phases, until two in a row are equal.
constexpr int kLooks = 8;
// PyListObject.ob_size: what is watched.
constexpr std::uint64_t kListSize = 16;

StringId text_of(RecordingWriter& writer, const char* text, std::uint32_t size) {
  return writer.string(std::string_view(text, size));
}

}  // namespace

TorchState recorded_state(const dp_torch_state& torch) {
  TorchState state;
  if (torch.status != DP_TORCH_READ) {
    state.status = TorchStatus::kStale;
    return state;
  }
  state.status = TorchStatus::kRead;
  state.autograd_id = torch.autograd_id;
  state.frame_id = torch.frame_id;
  state.compile_id = torch.compile_id;
  state.attempt = torch.attempt;
  return state;
}

ContextId TorchWatch::context(const WatchedProcess& process, const dp_torch_state& torch) {
  Context context;
  context.torch = recorded_state(torch);
  return process.writer.context(context);
}

void TorchWatch::look_at_all(const WatchedProcess& process, std::uint64_t now_ns) {
  locals_ = find_torch_locals(process.objects, process.python);
  if (locals_.guards == 0 && locals_.event_log == 0) return;
  for (auto [tid, tstate] : thread_states(process.objects, process.python))
    look(process, tid, tstate, now_ns);
}

void TorchWatch::look_at(const WatchedProcess& process, pid_t tid, std::uint64_t now_ns) {
  Thread& thread = threads_[tid];
  if (now_ns < thread.next_look_ns) return;
  if (!locals_.complete()) locals_ = find_torch_locals(process.objects, process.python);
  auto states = thread_states(process.objects, process.python);
  auto at = states.find(tid);
  if (at != states.end() && (locals_.guards || locals_.event_log))
    look(process, tid, at->second, now_ns);
  // Not all of it may be there yet: the list is made when the thread's first phase begins.
  thread.backoff_ns = std::clamp(thread.backoff_ns * 2, kFirstBackoffNs, kLongestBackoffNs);
  thread.next_look_ns = now_ns + thread.backoff_ns;
}

void TorchWatch::look(const WatchedProcess& process, pid_t tid, std::uint64_t tstate,
                      std::uint64_t now_ns) {
  dp_torch_thread found = find_torch_thread(process.objects, locals_, tstate);
  if (found.context.entry == 0 && found.phases.entry == 0) return;
  Thread& thread = threads_[tid];
  auto state = read_torch_thread(process.objects, found, process.python.none);
  found.pid = static_cast<std::uint32_t>(process.python.pid);
  if (!thread.slot) thread.slot = process.kernel.new_phase_slot();
  found.slot = *thread.slot;
  found.resting = thread.resting;
  bool same = thread.watch && state && state->phase_list == thread.list;
  process.kernel.set_torch_thread(static_cast<std::uint32_t>(tid), found);
  thread.place = found;
  if (same || !state || state->phase_list == 0 || thread.given_up) return;
  end_watch(process, tid, thread, now_ns);
  watch(process, tid, thread, state->phase_list);
  if (!thread.watch) return;
  if (!begin_hits(process, tid, thread)) end_watch(process, tid, thread, now_ns);
}

// The watchpoint is armed: from which hit on, and what is open then? False: the list is another one.
bool TorchWatch::begin_hits(const WatchedProcess& process, pid_t tid, Thread& thread) {
  std::optional<TorchThreadState> state;
  for (int i = 0; i < kLooks; ++i) {
    auto now = read_torch_thread(process.objects, thread.place, process.python.none);
    if (!now || now->phase_list != thread.list) return false;
    if (state && state->phases == now->phases) break;
    state = std::move(now);
    thread.place.resting = false;
    process.kernel.set_phase_depth(thread.place.slot,
                                   static_cast<std::uint32_t>(state->phases.size()));
    process.kernel.set_torch_thread(static_cast<std::uint32_t>(tid), thread.place);
    thread.since_ns = monotonic_ns();
  }
  thread.resting = false;
  thread.last_hit_ns = thread.since_ns;
  begin_watch(process, tid, thread, *state, thread.since_ns);
  return true;
}

void TorchWatch::arm(const Thread& thread, bool on) {
  for (const Watchpoint* point :
       {&thread.watch, &thread.inline_begin, &thread.inline_end, &thread.breaks})
    point->arm(on);
}

void TorchWatch::rest(const WatchedProcess& process, std::uint64_t now_ns, double cost) {
  for (auto& [tid, thread] : threads_) {
    bool idle = thread.open.empty() && thread.last_hit_ns + kRestAfterNs < now_ns;
    if (!thread.watch || thread.resting || !idle) continue;
    thread.resting = true;
    thread.place.resting = true;
    process.kernel.set_torch_thread(static_cast<std::uint32_t>(tid), thread.place);
    arm(thread, false);
    leave_inlined(process, tid, thread, 0, now_ns);
    write_watch_end(process, tid, now_ns);
    if (!std::exchange(told_rest_, true))
      problem_ = fmt::format(
          "hardware watchpoints make page faults {:.1f} times as dear on this machine: threads "
          "that "
          "have not compiled for half a minute are not watched, and the first phases of their next "
          "compile may be missed",
          cost);
  }
}

bool TorchWatch::rests(pid_t tid) const {
  auto at = threads_.find(tid);
  return at != threads_.end() && at->second.resting;
}

void TorchWatch::wake(const WatchedProcess& process, pid_t tid, std::uint64_t now_ns) {
  auto at = threads_.find(tid);
  if (at == threads_.end() || !at->second.resting) return;
  Thread& thread = at->second;
  arm(thread, true);
  if (begin_hits(process, tid, thread)) return;
  end_watch(process, tid, thread, now_ns);
  thread.next_look_ns = 0;
  look_at(process, tid, now_ns);
}

void TorchWatch::write_watch_end(const WatchedProcess& process, pid_t tid, std::uint64_t now_ns) {
  SpanEdge edge;
  edge.time_ns = now_ns;
  edge.thread = process.thread(tid);
  edge.kind = EdgeKind::kWatchEnd;
  process.writer.edge(edge);
}

void TorchWatch::watch(const WatchedProcess& process, pid_t tid, Thread& thread,
                       std::uint64_t list) {
  auto fail = [&](const Error& why) {
    thread.given_up = true;
    if (!std::exchange(told_, true))
      problem_ = fmt::format("{}: begin and end of its phases come from samples", why.what);
  };
  thread.given_up = !process.kernel.may_watch();
  if (thread.given_up) return;
  auto fd = open_write_watchpoint(tid, list + kListSize);
  if (!fd) return fail(fd.error());
  auto link = process.kernel.watch_phases(std::move(*fd));
  if (!link) return fail(link.error());
  thread.watch = std::move(*link);
  thread.list = list;
  watched_++;
  watch_inline(process, tid, thread);
  watch_breaks(process, tid, thread);
}

void TorchWatch::begin_watch(const WatchedProcess& process, pid_t tid, Thread& thread,
                             const TorchThreadState& state, std::uint64_t now_ns) {
  Context context;
  context.torch.status = TorchStatus::kRead;
  if (state.context) {
    if (auto ids = read_compile_context(process.objects, process.torch, process.python.none,
                                        state.context)) {
      context.torch.autograd_id = ids->autograd_id;
      context.torch.frame_id = ids->frame_id;
      context.torch.compile_id = ids->compile_id;
      context.torch.attempt = ids->attempt;
    }
  }
  thread.open.clear();
  thread.unnamed.reset();
  for (const std::string& phase : state.phases) thread.open.push_back(process.writer.string(phase));
  context.torch.phases = thread.open;
  SpanEdge edge;
  edge.time_ns = now_ns;
  edge.thread = process.thread(tid);
  edge.kind = EdgeKind::kWatchBegin;
  edge.depth = static_cast<std::uint32_t>(thread.open.size());
  edge.context = thread.context = process.writer.context(context);
  process.writer.edge(edge);
}

void TorchWatch::end_watch(const WatchedProcess& process, pid_t tid, Thread& thread,
                           std::uint64_t now_ns) {
  if (!thread.watch) return;
  if (thread.unnamed) name_last(process, thread, name_now(process, thread));
  leave_inlined(process, tid, thread, 0, now_ns);
  thread.inline_begin.reset();
  thread.inline_end.reset();
  thread.breaks.reset();
  thread.watch.reset();
  thread.list = 0;
  thread.open.clear();
  watched_--;
  if (!std::exchange(thread.resting, false)) write_watch_end(process, tid, now_ns);
}

// What the last phase that began is called, from the target's memory. It may have ended since, and
// another one begun, with both hits still on their way here: the kernel side knows of them.
StringId TorchWatch::name_now(const WatchedProcess& process, const Thread& thread) {
  auto state = read_torch_thread(process.objects, thread.place, process.python.none);
  if (!state || state->phases.empty() || state->phases.size() != thread.open.size()) return 0;
  if (process.kernel.last_phase_hit(thread.place.slot) != thread.unnamed->time_ns) return 0;
  return process.writer.string(state->phases.back());
}

void TorchWatch::name_innermost(const WatchedProcess& process, pid_t tid, std::uint32_t depth,
                                std::string_view name) {
  auto at = threads_.find(tid);
  if (at == threads_.end() || name.empty() || at->second.open.size() != depth) return;
  name_last(process, at->second, process.writer.string(name));
}

void TorchWatch::ask_for_names(const WatchedProcess& process) {
  for (auto& [tid, thread] : threads_) {
    if (!thread.unnamed) continue;
    if (StringId name = name_now(process, thread)) name_last(process, thread, name);
  }
}

void TorchWatch::name_last(const WatchedProcess& process, Thread& thread, StringId name) {
  if (!thread.unnamed) return;
  thread.unnamed->name = name;
  if (!thread.open.empty()) thread.open.back() = name;
  process.writer.edge(*thread.unnamed);
  thread.unnamed.reset();
}

bool TorchWatch::too_fast(Thread& thread, std::uint64_t now_ns) {
  if (now_ns / kSecondNs != std::exchange(thread.second, now_ns / kSecondNs)) thread.hits = 0;
  return ++thread.hits > kMaxHitsPerSecond;
}

void TorchWatch::watch_breaks(const WatchedProcess& process, pid_t tid, Thread& thread) {
  if (process.torch.break_list == 0) return;
  auto fd = open_write_watchpoint(tid, process.torch.break_list + kListSize);
  auto link = fd ? process.kernel.watch_breaks(std::move(*fd)) : std::move(fd).error();
  if (link) {
    thread.breaks = std::move(*link);
  } else if (!std::exchange(told_breaks_, true)) {
    problem_ =
        fmt::format("{}: which compile a graph break belongs to is told by torch's notes alone",
                    link.error().what);
  }
}

void TorchWatch::watch_inline(const WatchedProcess& process, pid_t tid, Thread& thread) {
  if (process.torch.inline_code == 0) return;
  auto begin = open_instruction_watchpoint(tid, process.torch.inline_begin);
  auto end = open_instruction_watchpoint(tid, process.torch.inline_end);
  if (!begin || !end) {
    if (!std::exchange(told_inline_, true))
      problem_ = fmt::format("{}: how often Dynamo traced a user function comes from samples",
                             (begin ? end : begin).error().what);
    return;
  }
  auto first = process.kernel.watch_inline(std::move(*begin), true);
  auto last = process.kernel.watch_inline(std::move(*end), false);
  if (!first || !last) return;
  thread.inline_begin = std::move(*first);
  thread.inline_end = std::move(*last);
}

// All but `keep` of the user functions under way were left by an exception.
void TorchWatch::leave_inlined(const WatchedProcess& process, pid_t tid, Thread& thread,
                               std::size_t keep, std::uint64_t now_ns) {
  while (thread.inlined.size() > keep) {
    SpanEdge edge;
    edge.time_ns = now_ns;
    edge.thread = process.thread(tid);
    edge.context = thread.context;
    edge.kind = EdgeKind::kInlineEnd;
    edge.depth = static_cast<std::uint32_t>(thread.inlined.size());
    edge.name = process.writer.string("raised");
    process.writer.edge(edge);
    thread.inlined.pop();
  }
}

void TorchWatch::on_inline(const WatchedProcess& process, const dp_inline_event& event) {
  auto tid = static_cast<pid_t>(event.header.tid);
  auto at = threads_.find(tid);
  if (at == threads_.end() || !at->second.inline_begin || at->second.resting) return;
  Thread& thread = at->second;
  const std::uint64_t now_ns = event.header.time_ns;
  if (too_fast(thread, now_ns)) {
    thread.inline_begin.reset();
    thread.inline_end.reset();
    leave_inlined(process, tid, thread, 0, now_ns);
    if (!std::exchange(told_inline_, true))
      problem_ = fmt::format(
          "Dynamo traces more than {} user functions a second: no longer counted one by one",
          kMaxHitsPerSecond);
    return;
  }
  SpanEdge edge;
  edge.time_ns = now_ns;
  edge.thread = process.thread(tid);
  edge.context = thread.context;
  edge.cpu_ns = event.cpu_ns;
  auto& open = thread.inlined;
  if (event.begin) {
    if (open.is_repeat(event)) return;
    leave_inlined(process, tid, thread, open.around(event), now_ns);
    open.push(event, thread.open.size());
    edge.kind = EdgeKind::kInlineBegin;
    edge.code = event.code ? process.code(event.code, event.identity) : 0;
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

void TorchWatch::on_break(const WatchedProcess& process, const dp_break_event& event) {
  if (event.length == 0) return;  // torch._dynamo.reset()
  SpanEdge edge;
  edge.time_ns = event.header.time_ns;
  edge.thread = process.thread(static_cast<pid_t>(event.header.tid));
  edge.kind = EdgeKind::kGraphBreak;
  edge.context = context(process, event.torch);
  edge.cpu_ns = event.cpu_ns;
  // By now the note is whole: its length is written last.
  RemoteValues values(process.objects, process.python);
  if (auto cause = read_graph_break_at(values, process.torch.break_list, event.length - 1)) {
    edge.name = process.writer.string(
        graph_break_json(*cause).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  process.writer.edge(edge);
}

void TorchWatch::on_phase(const WatchedProcess& process, const dp_phase_event& event) {
  auto tid = static_cast<pid_t>(event.header.tid);
  auto at = threads_.find(tid);
  if (at == threads_.end() || !at->second.watch) return;  // a hit from before its end
  Thread& thread = at->second;
  const std::uint64_t now_ns = event.header.time_ns;
  if (now_ns <= thread.since_ns) return;
  if (thread.resting) return wake(process, tid, now_ns);  // it hit just before it was let rest
  thread.last_hit_ns = now_ns;
  if (too_fast(thread, now_ns)) {
    end_watch(process, tid, thread, now_ns);
    thread.given_up = true;
    if (!std::exchange(told_, true))
      problem_ =
          fmt::format("thread {} changes phases more than {} times a second: no longer watched",
                      tid, kMaxHitsPerSecond);
    return;
  }
  if (event.torch.status == DP_TORCH_STALE) {
    end_watch(process, tid, thread, now_ns);
    thread.next_look_ns = 0;
    look_at(process, tid, now_ns);
    return;
  }
  SpanEdge edge;
  edge.time_ns = now_ns;
  edge.thread = process.thread(tid);
  edge.context = thread.context = context(process, event.torch);
  edge.cpu_ns = event.cpu_ns;
  const std::uint32_t depth = event.depth;
  if (event.before != thread.open.size() || depth > event.before + 1) {
    // Hits were lost: nothing of what was open can be paired any more.
    lost_++;
    end_watch(process, tid, thread, now_ns);
    thread.next_look_ns = 0;
    look_at(process, tid, now_ns);
    return;
  }
  if (depth == event.before) return;  // written, not changed
  StringId name = text_of(process.writer, event.name, event.name_size);
  if (depth > event.before) {
    name_last(process, thread, name);
    thread.open.push_back(0);
    edge.kind = EdgeKind::kPhaseBegin;
    edge.depth = depth;
    thread.unnamed = edge;
    return;
  }
  name_last(process, thread, depth + 1 == event.before ? name : 0);
  leave_inlined(process, tid, thread, thread.inlined.within(depth), now_ns);
  while (thread.open.size() > depth) {
    edge.kind = EdgeKind::kPhaseEnd;
    edge.depth = static_cast<std::uint32_t>(thread.open.size());
    edge.name = thread.open.back();
    if (edge.depth == depth + 1 && name) edge.name = name;
    process.writer.edge(edge);
    thread.open.pop_back();
  }
}

void TorchWatch::finish(const WatchedProcess& process, std::uint64_t now_ns) {
  for (auto& [tid, thread] : threads_) end_watch(process, tid, thread, now_ns);
}

std::string TorchWatch::take_problem() { return std::exchange(problem_, {}); }

}  // namespace dynprof
