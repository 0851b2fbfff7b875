#include "user/session/process_follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "user/preflight/capabilities.h"
#include "user/preflight/check_target.h"
#include "user/target/clock.h"
#include "user/target/descendants.h"
#include "user/target/process.h"
#include "user/target/read_losses.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxDescendants = DP_MAX_PROCESSES;
constexpr std::size_t kMostEndThreads = 4;  // each keeps pages of a process's memory
// Looking for Python and CUDA takes long where processes are many: events are read in between. All looks of
// one round of the loop share this.
constexpr std::uint64_t kLooksNs = 10'000'000;
// ... and all looks before the first sample this; later ones come in the loop.
constexpr std::uint64_t kFirstLooksNs = 1'000'000'000;
constexpr std::uint64_t kBetweenGpuLooksNs = 50'000'000;
// Between two rounds through all processes: to ask one whether something is due takes some 0.2 us, and 0.5 us for
// problems.
constexpr std::uint64_t kRoundPerProcessNs = 20'000;
constexpr std::uint64_t kProblemsPerProcessNs = 100'000;
// A look for torch in a Python process takes some 20 us. One that is not sampled meanwhile does not import it.
constexpr std::uint64_t kIdleLookPerProcessNs = 2'000'000;

}  // namespace

ProcessFollower::ProcessFollower(const SessionOptions& options, Sources& sources, Targets& targets,
                                 Notes& notes, std::function<bool()> stop_requested)
    : options_(options),
      sources_(sources),
      targets_(targets),
      notes_(notes),
      stop_requested_(std::move(stop_requested)),
      processes_({.children = options.children || options.all,
                  .command_lines = options.command_lines,
                  .gpu_work = options.gpu.mode == GpuMode::kOn && !options.passive,
                  .user_packages = options.user_packages,
                  .record_functions = options.record_functions,
                  .all_user_lines = options.all_user_lines},
                 *sources.kernel),
      lives_(options.command_lines) {
  for (const pid_t pid : options.targets) processes_.follow_at_begin(pid, 0);
  if (options.all)
    for (auto [pid, parent] : find_all_processes(kMaxDescendants)) processes_.follow(pid, parent);
}

Result<void> ProcessFollower::examine() {
  if (!options_.launched) sources_.prepare_native(processes_);
  start_ns_ = monotonic_ns();
  if (options_.launched) return {};  // it is still this program, before its exec
  for (auto& [pid, process] : processes_.all()) {
    if (options_.all && !may_look_more()) break;
    auto found = process.discover(start_ns_);
    if (found || options_.all || process.fault() == PythonFault::kStarting) continue;
    if (!fault_leaves_native_names(process.fault())) return found;
    notes_.add(fmt::format("{}; only native function names can be shown", found.error().what));
  }
  return {};
}

Result<void> ProcessFollower::begin() {
  for (auto& [pid, process] : processes_.all()) TRY(process.entry().introduce());
  TRY(sources_.kernel->attach_process_events());
  // After the tracepoints, so that no child falls between the two.
  if (options_.all) {
    TRY(catch_up_with_all());
  } else if (options_.children) {
    for (auto [child, parent] : find_descendants(options_.targets, kMaxDescendants))
      TRY(add_child(child, parent));
  }
  for (auto& [pid, process] : processes_.all()) process.tracer().attach_probes();
  sources_.attach_off_cpu(processes_, notes_);
  TRY(sources_.begin_sampling());
  look_for_gpus(monotonic_ns(), start_ns_ + kFirstLooksNs);
  sources_.gpu->all_looked_at();
  return {};
}

Result<void> ProcessFollower::add_child(pid_t child, pid_t parent) {
  if (processes_.find(child)) return {};
  FollowedProcess& process = processes_.follow_at_begin(child, parent);
  if (sources_.native) sources_.native->give(process);
  // It need not be Python.
  if (may_look_more()) (void)process.discover(monotonic_ns());
  return process.entry().introduce();
}

// Between the first look at all processes and the tracepoints some have ended and others begun.
Result<void> ProcessFollower::catch_up_with_all() {
  std::erase_if(processes_.all(), [this](const auto& entry) {
    if (read_process_stat(entry.first)) return false;
    sources_.kernel->forget_process(static_cast<std::uint32_t>(entry.first));
    return true;
  });
  for (auto [pid, parent] : find_all_processes(kMaxDescendants)) TRY(add_child(pid, parent));
  if (processes_.all().size() >= kMaxDescendants)
    notes_.add(fmt::format("there are more than {} processes: the others are not sampled",
                           kMaxDescendants));
  return {};
}

// Where setting a uprobe takes CAP_SYS_ADMIN, it is kept until torch's libraries are there to be probed, with
// --all to the end. Some kernels want it for each watchpoint too; a thread gets those when it compiles.
void ProcessFollower::drop_rights(bool watchpoints_need_admin) {
  watchpoints_need_admin_ = watchpoints_need_admin;
  if (dropped_all_) return;
  const Uprobes* uprobes = sources_.kernel->uprobes();
  dropped_all_ =
      !uprobes || !uprobes->need_admin() ||
      (!options_.all &&
       std::all_of(options_.targets.begin(), options_.targets.end(), [&](pid_t pid) {
         const FollowedProcess* process = processes_.find(pid);
         return !process || (process->probes_settled() && sources_.gpu->probes_settled(pid));
       }));
  drop_capabilities(!dropped_all_ || watchpoints_need_admin);
}

// Before the first sample.
bool ProcessFollower::may_look_more() const {
  return !(stop_requested_ && stop_requested_()) && monotonic_ns() - start_ns_ < kFirstLooksNs;
}

void ProcessFollower::look_for_gpus(std::uint64_t now_ns, std::uint64_t until_ns) {
  if (now_ns < next_gpu_looks_ns_) return;
  const bool all = gpu_turns_.round(processes_.all(), [&](pid_t pid, FollowedProcess& process) {
    sources_.gpu->look(pid, now_ns);
    if (sources_.gpu->has_library(pid)) process.entry().expect_gpu_work();
    return monotonic_ns() < until_ns;
  });
  if (all) next_gpu_looks_ns_ = now_ns + kBetweenGpuLooksNs;
}

void ProcessFollower::write_begin(RecordingWriter& writer) {
  for (auto [pid, parent] : processes_.there()) lives_.there(pid, parent, writer);
  for (auto& [pid, process] : processes_.all()) process.tracer().begin(writer);
}

std::uint64_t ProcessFollower::tick(std::uint64_t now_ns, RecordingWriter& writer) {
  if (now_ns >= std::min(next_ticks_ns_, tick_due_ns_)) {
    tick_due_ns_ = UINT64_MAX;
    for (auto& [pid, process] : processes_.all())
      tick_due_ns_ = std::min(tick_due_ns_, process.tracer().tick(now_ns, writer));
    next_ticks_ns_ = now_ns + processes_.all().size() * kRoundPerProcessNs;
  }
  memory_.tick(now_ns, processes_, writer);
  return tick_due_ns_;
}

void ProcessFollower::look_again(std::uint64_t now_ns, RecordingWriter& writer) {
  const std::uint64_t begin_ns = monotonic_ns();
  look_for_gpus(now_ns, begin_ns + kLooksNs / 2);
  const auto look = [&](FollowedProcess& process, std::uint64_t later_ns) {
    if (process.next_look_ns() == 0 || now_ns < process.next_look_ns() + later_ns) return true;
    look_at(process, now_ns, writer);
    return monotonic_ns() - begin_ns < kLooksNs;
  };
  bool time_left = true;
  while (FollowedProcess* process = time_left ? processes_.take_sampled() : nullptr)
    time_left = look(*process, 0);
  const std::uint64_t idle_ns = processes_.all().size() * kIdleLookPerProcessNs;
  if (time_left && now_ns >= next_looks_ns_ &&
      look_turns_.round(processes_.all(), [&](pid_t, FollowedProcess& process) {
        return look(process, process.python() ? idle_ns : 0);
      }))
    next_looks_ns_ = now_ns + processes_.all().size() * kRoundPerProcessNs;
  if (now_ns >= next_problems_ns_) {
    for (auto& [pid, process] : processes_.all())
      if (std::string problem = process.take_problem(); targets_.contains(pid)) notes_.add(problem);
    next_problems_ns_ = now_ns + processes_.all().size() * kProblemsPerProcessNs;
  }
  if (sources_.native) notes_.add(sources_.native->take_problem());
  notes_.add(ReadLosses::of_program().take_note());
}

void ProcessFollower::look_at(FollowedProcess& process, std::uint64_t now_ns,
                              RecordingWriter& writer) {
  processes_.inherit(process.pid());
  if (!process.native().space() && sources_.native) {
    sources_.native->give(process);
    (void)process.entry().update();
  }
  auto found = process.discover(now_ns);
  if (found) process.tracer().watch_threads(writer);
  if (watchpoints_need_admin_) drop_rights(*watchpoints_need_admin_);
  if (!found && targets_.contains(process.pid()) && process.next_look_ns() == 0)
    notes_.add(fmt::format("{}; only native function names can be shown", found.error().what));
  process.describe(writer);
}

void ProcessFollower::begin_end(RecordingWriter& writer) {
  std::size_t threads = 0;
  for (auto& [pid, process] : processes_.all()) {
    if (targets_.contains(pid)) {
      for (const std::string& what : process.tracer().lacks())
        notes_.add(fmt::format("{}: compiles come from the other sources", what));
    }
    if (process.tracer().finish(writer, threads < kMostEndThreads)) ++threads;
  }
}

void ProcessFollower::write_end(RecordingWriter& writer) {
  for (auto& [pid, process] : processes_.all()) process.tracer().image_ended(writer);
  for (auto& [pid, process] : processes_.all()) lives_.left(pid, writer);
}

}  // namespace dynprof
