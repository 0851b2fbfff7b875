#include "user/session/event_router.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

namespace dynprof {

void EventRouter::route(std::span<const std::byte> bytes) {
  const auto event = decode_event(bytes);
  if (event)
    std::visit([this](const auto& one) { on(one); }, *event);
  else
    ++to_.losses.malformed;
}

void EventRouter::on(const SampleView& view) {
  const auto pid = static_cast<pid_t>(view.sample.header.pid);
  // New: its fork event was lost, or a sample taken just before its exit comes after it.
  FollowedProcess& process = to_.processes.follow(pid, 0);
  to_.processes.inherit(pid);
  to_.encoder.encode(view, process);
  if (to_.native) to_.native->look_for_code(view.sample, process);
}

void EventRouter::on(const WaitStackView& view) {
  FollowedProcess* process = process_of(view.stack.sample.header);
  if (!to_.off_cpu || !process) return;
  to_.off_cpu->on_stack(view.stack, *process, to_.encoder);
  if (to_.native) to_.native->look_for_code(view.stack.sample, *process);
}

void EventRouter::on(const dp_wait_event& event) {
  if (to_.off_cpu) to_.off_cpu->on_wait(event, process_of(event.header), to_.writer);
}

void EventRouter::on(const dp_phase_event& event) {
  if (auto* process = process_of(event.header)) process->tracer().on(event, to_.writer);
}

void EventRouter::on(const dp_inline_event& event) {
  if (auto* process = process_of(event.header)) process->tracer().on(event, to_.writer);
}

void EventRouter::on(const dp_probe_event& event) {
  if (auto* process = process_of(event.header)) process->tracer().on(event, to_.writer);
}

void EventRouter::on(const GpuEventView& view) {
  FollowedProcess* process = process_of(view.header);
  if (process && !to_.gpu.on_event(view, *process, to_.encoder, to_.writer)) ++to_.losses.malformed;
}

void EventRouter::on(const ProcessEventView& view) {
  const dp_process_event& event = view.event;
  const auto pid = static_cast<pid_t>(event.header.pid);
  to_.lives.event(view, to_.writer);
  switch (event.header.kind) {
    case DP_EVENT_FORK:
      to_.processes.forked(pid, static_cast<pid_t>(event.parent_pid));
      to_.gpu.forget(pid);
      to_.gpu.forked(pid);
      return;
    case DP_EVENT_EXEC:
      return on_exec(pid, view);
    case DP_EVENT_EXIT:
      return on_exit(pid);
    default:  // DP_EVENT_REAPED
      return;
  }
}

void EventRouter::on_exec(pid_t pid, const ProcessEventView& view) {
  FollowedProcess* process = to_.processes.find(pid);
  if (!process) return;
  to_.processes.image_ends(pid);
  process->forget_image(view.event.header.time_ns);
  process->identity().runs(view.event.comm, view.exe, view.args);
  if (to_.native && exec_rate_.is_low(view.event.header.time_ns)) to_.native->give(*process);
  to_.gpu.forget(pid);
  // What we told the kernel side while the event was under way was of the old image.
  (void)process->entry().update();
  if (to_.targets.contains(pid) && !std::exchange(to_.launched, false))
    to_.notes.add(fmt::format("process {} has started another program", pid));
}

void EventRouter::on_exit(pid_t pid) {
  FollowedProcess* process = to_.processes.find(pid);
  if (!process) return;
  to_.processes.image_ends(pid);
  process->describe(to_.writer);
  if (to_.targets.contains(pid)) {
    to_.targets.ended(pid);
  } else if (!to_.gpu.traces(pid)) {
    to_.losses.add(*process);
    to_.processes.erase(pid);
  }
}

}  // namespace dynprof
