#include "user/session/recording_loop.h"

#include <sys/prctl.h>

#include <algorithm>
#include <span>

#include "user/target/clock.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kTickNs = 20'000'000;
constexpr std::uint64_t kFlushEveryNs = 1'000'000'000;
constexpr std::uint64_t kProgressEveryNs = 250'000'000;
// The last events are read for no longer than this; what is left then is counted as lost.
constexpr std::uint64_t kLastReadNs = 2'000'000'000;

}  // namespace

RecordingLoop::RecordingLoop(const LoopParts& parts, std::uint64_t since_ns)
    : parts_(parts),
      since_ns_(since_ns),
      stop_{parts.hooks.stop_requested, parts.hooks.disk_is_nearly_full, parts.options.duration_ns,
            parts.options.max_bytes},
      pace_(parts.sources.events.period_ns),
      native_(parts.writer),
      encoder_(parts.writer, native_),
      router_({.writer = parts.writer,
               .encoder = encoder_,
               .processes = parts.follower.processes(),
               .targets = parts.targets,
               .lives = parts.follower.lives(),
               .gpu = *parts.sources.gpu,
               .off_cpu = parts.sources.off_cpu.get(),
               .native = parts.sources.native.get(),
               .losses = losses_,
               .pace = pace_,
               .notes = parts.notes,
               .launched = parts.options.launched}) {}

std::string RecordingLoop::run() {
  auto& [options, hooks, sources, follower, targets, notes, writer, priority] = parts_;
  follower.write_begin(writer);
  // ns; by default 50 us, in which more of the code that a sample shows is freed.
  prctl(PR_SET_TIMERSLACK, 1);
  const std::uint64_t flush_every = options.max_bytes ? StopRules::kSpaceCheckNs : kFlushEveryNs;
  std::uint64_t next_flush = since_ns_ + flush_every;
  std::uint64_t next_progress = 0, next_tick = 0, next_due = UINT64_MAX;
  bool all_read = true;
  while (true) {
    std::uint64_t now = monotonic_ns();
    if (next_due > now) next_due = std::max(next_due, now + PollPace::kLeastNs);
    const std::uint64_t due = std::min(next_due, now + pace_.wait_ns(now));
    const std::uint64_t latest = std::min(next_due, now + PollPace::kCalmNs);
    if (all_read && due > now) wait_for_events(sources.kernel->ring_fd(), due - now);
    now = monotonic_ns();
    all_read = consume();
    // Not to be there when a sample comes is no reason to take the target's CPU.
    priority.follow(now, !all_read, now > latest ? now - latest : 0);
    if (sources.off_cpu && now >= next_tick) {
      sources.off_cpu->tick();
      next_tick = now + kTickNs;
    }
    next_due = follower.tick(now, writer);
    notes.add(sources.sampling.follow(now));
    follower.look_again(now, writer);
    if (now >= next_flush) {
      written_ = writer.flush();
      next_flush = now + flush_every;
    }
    if (hooks.progress && now >= next_progress) {
      hooks.progress(status(now));
      next_progress = now + kProgressEveryNs;
    }
    if (std::string reason = reason_to_stop(now); !reason.empty()) {
      detach_gpus();
      return reason;
    }
  }
}

std::string RecordingLoop::reason_to_stop(std::uint64_t now_ns) {
  return stop_.reason({.now_ns = now_ns,
                       .sampled_ns = now_ns - since_ns_,
                       .bytes = parts_.writer.size(),
                       .write_failed = !written_,
                       .targets_ended = parts_.targets.all_ended()});
}

// True: nothing was left.
bool RecordingLoop::consume(const DrainBudget& budget) {
  return parts_.sources.kernel->consume(
      [this](std::span<const std::byte> bytes) { router_.route(bytes); }, budget);
}

void RecordingLoop::detach_gpus() {
  GpuCollector& gpu = *parts_.sources.gpu;
  gpu.begin_detach();
  const std::uint64_t until = monotonic_ns() + GpuCollector::kDetachNs;
  for (consume(); !gpu.settled() && monotonic_ns() < until; consume()) {
    wait_for_events(parts_.sources.kernel->ring_fd(), PollPace::kCalmNs);
  }
  gpu.finish_detach();
}

// Probes still send: not more than the buffers hold is read.
void RecordingLoop::read_rest() {
  KernelSide& kernel = *parts_.sources.kernel;
  const DrainBudget budget = {.time_ns = kLastReadNs, .bytes = kernel.ring_capacity()};
  if (consume(budget)) return;
  kernel.consume([this](std::span<const std::byte> bytes) { losses_.unread(bytes); }, budget);
}

void RecordingLoop::begin_end() {
  if (OffCpu* off_cpu = parts_.sources.off_cpu.get()) {
    off_cpu->finish(parts_.follower.processes(), parts_.writer);
    losses_.wait_stacks = off_cpu->stacks_lost();
  }
  parts_.follower.begin_end(parts_.writer);
}

void RecordingLoop::write_end() { parts_.follower.write_end(parts_.writer); }

void RecordingLoop::write_names() {
  for (auto& [pid, process] : parts_.follower.processes().all()) process.describe(parts_.writer);
  parts_.notes.add(native_.symbolize(parts_.hooks.naming));
}

SessionStatus RecordingLoop::status(std::uint64_t now_ns) const {
  SessionStatus status;
  const Counters counters = parts_.sources.kernel->counters();
  status.elapsed_ns = now_ns - since_ns_;
  status.samples = encoder_.samples();
  status.in_compile = encoder_.in_compile();
  status.lost = counters[DP_COUNT_RING_FULL] + counters[DP_COUNT_NO_SCRATCH];
  status.bytes = parts_.writer.size();
  status.processes = parts_.follower.processes().all().size();
  return status;
}

Counters RecordingLoop::counters() const {
  Counters counters = parts_.sources.kernel->counters();
  SessionLosses losses = losses_;
  losses.unmerged = encoder_.unmerged();
  for (const auto& [pid, process] : parts_.follower.processes().all()) losses.add(process);
  losses.fill(counters);
  parts_.sources.gpu->fill(counters);
  return counters;
}

}  // namespace dynprof
