#include "user/session/event_router.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

namespace dynprof {

// One for each alternative of EventView.
struct EventRouter::Handlers {
  Parts& to;
  ExecRate& exec_rate;

  void on(const SampleView& view);
  void on(const WaitStackView& view);
  void on(const dp_wait_event& event);
  void on(const dp_phase_event& event);
  void on(const dp_inline_event& event);
  void on(const dp_probe_event& event);
  void on(const dp_annotation_event& event);
  void on(const ProcessEventView& view);
  void on(const GpuEventView& view);

  void on_exec(pid_t pid, const ProcessEventView& view);
  void on_exit(pid_t pid, std::uint64_t time_ns);
  FollowedProcess* process_of(const dp_event_header& header) {
    return to.processes.find(static_cast<pid_t>(header.pid));
  }
};

void EventRouter::route(std::span<const std::byte> bytes) {
  Handlers handlers{to_, exec_rate_};
  if (const auto event = decode_event(bytes))
    std::visit([&handlers](const auto& one) { handlers.on(one); }, *event);
  else
    ++to_.losses.malformed;
}

void EventRouter::Handlers::on(const SampleView& view) {
  const auto pid = static_cast<pid_t>(view.sample.header.pid);
  // New: its fork event was lost, or a sample taken just before its exit comes after it.
  FollowedProcess& process = to.processes.follow(pid, 0);
  to.processes.inherit(pid);
  to.pace.sampled(view.sample);
  to.encoder.encode(view, process);
  to.processes.sampled(process, view.sample.header.time_ns);
  if (to.native) to.native->look_for_code(view.sample, process);
}

void EventRouter::Handlers::on(const WaitStackView& view) {
  FollowedProcess* process = process_of(view.stack.sample.header);
  if (!to.off_cpu || !process) return;
  to.pace.waited(view.stack.sample);
  to.off_cpu->on_stack(view.stack, *process, to.encoder);
  if (to.native) to.native->look_for_code(view.stack.sample, *process);
}

void EventRouter::Handlers::on(const dp_wait_event& event) {
  if (to.off_cpu) to.off_cpu->on_wait(event, process_of(event.header), to.writer);
}

void EventRouter::Handlers::on(const dp_phase_event& event) {
  if (auto* process = process_of(event.header)) process->tracer().on(event, to.writer);
}

void EventRouter::Handlers::on(const dp_inline_event& event) {
  if (auto* process = process_of(event.header)) process->tracer().on(event, to.writer);
}

void EventRouter::Handlers::on(const dp_probe_event& event) {
  if (auto* process = process_of(event.header)) process->tracer().on(event, to.writer);
}

void EventRouter::Handlers::on(const dp_annotation_event& event) {
  if (auto* process = process_of(event.header)) process->tracer().on(event, to.writer);
}

void EventRouter::Handlers::on(const GpuEventView& view) {
  FollowedProcess* process = process_of(view.header);
  if (process && !to.gpu.on_event(view, *process, to.encoder, to.writer)) ++to.losses.malformed;
}

void EventRouter::Handlers::on(const ProcessEventView& view) {
  const dp_process_event& event = view.event;
  const auto pid = static_cast<pid_t>(event.header.pid);
  to.lives.event(view, to.writer);
  to.pace.hurry(event.header.time_ns);
  switch (event.header.kind) {
    case DP_EVENT_FORK:
      to.processes.forked(pid, static_cast<pid_t>(event.parent_pid));
      to.gpu.forget(pid);
      to.gpu.forked(pid);
      return;
    case DP_EVENT_EXEC:
      return on_exec(pid, view);
    case DP_EVENT_EXIT:
      return on_exit(pid, event.header.time_ns);
    default:  // DP_EVENT_REAPED
      return;
  }
}

void EventRouter::Handlers::on_exec(pid_t pid, const ProcessEventView& view) {
  FollowedProcess* process = to.processes.find(pid);
  if (!process) return;
  to.processes.image_ends(pid);
  process->tracer().runs_ended(view.event.header.time_ns, to.writer);
  process->tracer().image_ended(to.writer);
  process->forget_image(view.event.header.time_ns);
  process->identity().runs(view.event.comm, view.exe, view.args);
  if (to.native && exec_rate.is_low(view.event.header.time_ns)) to.native->give(*process);
  to.gpu.forget(pid);
  // What we told the kernel side while the event was under way was of the old image.
  (void)process->entry().update();
  if (to.targets.contains(pid) && !std::exchange(to.launched, false))
    to.notes.add(fmt::format("process {} has started another program", pid));
}

void EventRouter::Handlers::on_exit(pid_t pid, std::uint64_t time_ns) {
  FollowedProcess* process = to.processes.find(pid);
  if (!process) return;
  to.processes.image_ends(pid);
  process->tracer().runs_ended(time_ns, to.writer);
  process->describe(to.writer);
  if (to.targets.contains(pid)) {
    to.targets.ended(pid);
  } else if (!to.gpu.traces(pid)) {
    process->tracer().image_ended(to.writer);
    to.losses.add(*process);
    to.processes.erase(pid);
  }
}

}  // namespace dynprof
