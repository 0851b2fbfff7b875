#include "user/session/session.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "user/gpu/gpu_collector.h"
#include "user/kernel/clock.h"
#include "user/kernel/counter_names.h"
#include "user/kernel/cpu_sampling.h"
#include "user/preflight/capabilities.h"
#include "user/preflight/check_target.h"
#include "user/process/native_spaces.h"
#include "user/process/process_lives.h"
#include "user/process/process_table.h"
#include "user/process/sample_encoder.h"
#include "user/session/event_router.h"
#include "user/session/machine_cpu.h"
#include "user/session/ring_size.h"
#include "user/session/session_losses.h"
#include "user/session/session_meta.h"
#include "user/session/stop_rules.h"
#include "user/session/targets.h"
#include "user/session/turns.h"
#include "user/session/urgent_priority.h"
#include "user/stacks/native_frames.h"
#include "user/target/descendants.h"
#include "user/target/process.h"
#include "user/target/read_losses.h"
#include "user/waits/off_cpu.h"

namespace dynprof {
namespace {

constexpr int kPollMs = 20;
constexpr std::uint64_t kTickNs = 20'000'000;
constexpr std::uint64_t kFlushEveryNs = 1'000'000'000;
constexpr std::uint64_t kProgressEveryNs = 250'000'000;
// The last events are read for no longer than this; what is left then is counted as lost.
constexpr std::uint64_t kLastReadNs = 2'000'000'000;
constexpr std::size_t kMaxDescendants = DP_MAX_PROCESSES;
// Looking for Python and CUDA takes long where processes are many: events are read in between. All looks of
// one round of the loop share this.
constexpr std::uint64_t kLooksNs = 10'000'000;
// ... and all looks before the first sample this; later ones come in the loop.
constexpr std::uint64_t kFirstLooksNs = 1'000'000'000;
// Unwind tables are made in about a second the first time, and read from disk later.
constexpr std::chrono::milliseconds kTablesWait{1500};

class LiveSession final : public Session {
 public:
  LiveSession(const SessionOptions& options, SessionHooks hooks)
      : options_(options),
        hooks_(std::move(hooks)),
        stop_{hooks_.stop_requested, hooks_.disk_is_nearly_full, options.duration_ns,
              options.max_bytes},
        processes_({.children = options.children || options.all,
                    .command_lines = options.command_lines,
                    .user_packages = options.user_packages}),
        lives_(options.command_lines) {}

  Result<void> prepare() {
    for (pid_t pid : options_.targets) TRY(add_target(pid));
    if (options_.all)
      for (auto [pid, parent] : find_all_processes(kMaxDescendants)) processes_.follow(pid, parent);
    const KernelSideOptions kernel_options = {
        .ring_bytes = ring_bytes(options_.frequency_hz),
        .watchpoints = options_.watchpoints && !options_.passive,
        .probes = !options_.passive,
        .command_lines = options_.command_lines,
        .direct_map = options_.direct_map};
    ASSIGN_OR_RETURN(kernel_, KernelSide::load(kernel_options));
    gpu_ = std::make_unique<GpuCollector>(options_.passive ? GpuMode::kOff : options_.gpu, *kernel_,
                                          [this](const std::string& sentence) { note(sentence); });
    if (!options_.launched) TRY(gpu_->check(options_.targets));
    ASSIGN_OR_RETURN(events_, open_sampling_events(options_.event, options_.frequency_hz));
    sampling_ = CpuSampling::of(*kernel_, options_.event, options_.frequency_hz);
    load_off_cpu();
    start_native_unwinding();
    start_ns_ = monotonic_ns();
    if (options_.launched) return {};  // it is still us, before its exec
    for (auto& [pid, process] : processes_.all()) {
      if (options_.all && !may_look_more()) break;
      auto found = process.discover(start_ns_, *kernel_);
      if (found || options_.all || process.fault() == PythonFault::kStarting) continue;
      if (!fault_leaves_native_names(process.fault())) return found;
      note(fmt::format("{}; only native function names can be shown", found.error().what));
    }
    return {};
  }

  Meta meta() const override {
    return describe_session(
        options_, events_, start_ns_,
        options_.targets.empty() ? nullptr : processes_.find(options_.targets[0]));
  }

  Result<void> attach() override {
    machine_.begin();
    for (auto& [pid, process] : processes_.all()) TRY(process.introduce(*kernel_));
    TRY(kernel_->attach_process_events());
    // After the tracepoints, so that no child falls between the two.
    if (options_.all) {
      TRY(catch_up_with_all());
    } else if (options_.children) {
      for (auto [child, parent] : find_descendants(options_.targets, kMaxDescendants))
        TRY(add_child(child, parent));
    }
    for (auto& [pid, process] : processes_.all()) process.attach_probes(*kernel_);
    attach_off_cpu();
    TRY(sampling_.begin(std::move(events_.cpus)));
    look_for_gpus(monotonic_ns(), start_ns_ + kFirstLooksNs);
    watchpoints_need_admin_ = options_.watchpoints && !options_.passive && perf_events_need_admin();
    drop_what_is_not_needed();
    sampling_since_ns_ = monotonic_ns();
    return {};
  }

  Result<SessionStatus> run(RecordingWriter& writer) override {
    // A code object seen in a sample may be freed before our turn comes on a busy machine.
    std::optional<UrgentPriority> urgent(std::in_place);
    writer_ = &writer;
    NativeFrames native(writer);
    SampleEncoder encoder(writer, native, *kernel_);
    encoder_ = &encoder;
    EventRouter router({.kernel = *kernel_,
                        .writer = writer,
                        .encoder = encoder,
                        .processes = processes_,
                        .targets = targets_,
                        .lives = lives_,
                        .gpu = *gpu_,
                        .off_cpu = off_cpu_.get(),
                        .native = native_unwind_.get(),
                        .losses = losses_,
                        .note = [this](const std::string& sentence) { note(sentence); },
                        .launched = options_.launched});
    router_ = &router;
    for (auto [pid, parent] : processes_.there()) lives_.there(pid, parent, writer);
    for (auto& [pid, process] : processes_.all()) {
      process.watch_torch(writer, *kernel_);
      process.refresh_facts_at_attach();
      process.facts().write_at_attach(pid, writer);
    }
    const std::uint64_t flush_every = options_.max_bytes ? StopRules::kSpaceCheckNs : kFlushEveryNs;
    std::uint64_t next_flush = start_ns_ + flush_every;
    std::uint64_t next_progress = 0, next_tick = 0, next_note = UINT64_MAX;
    Result<void> written;
    bool all_read = true;
    while (true) {
      pollfd ring = {kernel_->ring_fd(), POLLIN, 0};
      if (all_read) poll(&ring, 1, ms_until(next_note, kPollMs));
      std::uint64_t now = monotonic_ns();
      all_read = consume();
      next_note = UINT64_MAX;
      if (off_cpu_ && now >= next_tick) {
        off_cpu_->tick();
        next_tick = now + kTickNs;
      }
      for (auto& [pid, process] : processes_.all()) {
        process.write_lines(writer);
        process.refresh_facts(now);
        next_note = std::min(next_note, process.facts().note_due_ns());
      }
      if (std::string problem = sampling_.follow(now); !problem.empty()) note(problem);
      look_again(now);
      if (now >= next_flush) {
        written = writer.flush();
        next_flush = now + flush_every;
      }
      if (hooks_.progress && now >= next_progress) {
        hooks_.progress(status(now));
        next_progress = now + kProgressEveryNs;
      }
      if (reason_to_stop(now, written)) break;
    }
    detach_gpus();
    if (off_cpu_) off_cpu_->detach();
    sampling_.detach();
    kernel_->detach();
    drop_capabilities(false);  // no more probes: what follows reads memory and files
    const std::string machine =
        machine_.end([this](pid_t pid) { return processes_.find(pid) != nullptr; });
    consume_rest();
    const std::uint64_t end = monotonic_ns();
    write_machine(machine, writer);
    finish_off_cpu();
    for (auto& [pid, process] : processes_.all()) {
      process.write_lines(writer);
      process.end_watches(writer, *kernel_);
      process.refresh_facts_at_end();
      if (targets_.contains(pid)) {
        for (const std::string& what : process.torch_lacks())
          note(fmt::format("{}: compiles come from the other sources", what));
      }
      process.facts().write_at_end(pid, writer);
    }
    for (auto& [pid, process] : processes_.all()) lives_.left(pid, writer);
    urgent.reset();
    give_way();  // what follows needs nothing of the target's memory
    losses_.unmerged = encoder.unmerged();
    router_ = nullptr;
    encoder_ = nullptr;
    for (auto& [pid, process] : processes_.all()) process.describe(writer);
    if (std::string problem = native.symbolize(hooks_.naming); !problem.empty()) note(problem);
    for (std::string loss; !(loss = ReadLosses::of_program().take_note()).empty();) note(loss);
    fill_trailer(end);
    Result<void> finished = writer.finish(trailer_);
    writer_ = nullptr;
    if (!written) return std::move(written).error();
    if (!finished) return std::move(finished).error();
    SessionStatus final_status = status(end);
    final_status.samples = encoder.samples();
    final_status.in_compile = encoder.in_compile();
    final_status.bytes = writer.size();
    return final_status;
  }

  const Trailer& trailer() const override { return trailer_; }

 private:
  Result<void> add_target(pid_t pid) {
    TRY(check_target(pid));
    processes_.follow_at_begin(pid, 0);
    targets_.add(pid);
    return {};
  }

  Result<void> add_child(pid_t child, pid_t parent) {
    if (processes_.find(child)) return {};
    FollowedProcess& process = processes_.follow_at_begin(child, parent);
    if (native_unwind_) native_unwind_->give(process);
    // It need not be Python.
    if (may_look_more()) (void)process.discover(monotonic_ns(), *kernel_);
    return process.introduce(*kernel_);
  }

  // Between the first look at all processes and the tracepoints some have ended and others begun.
  Result<void> catch_up_with_all() {
    std::erase_if(processes_.all(), [this](const auto& entry) {
      if (read_process_stat(entry.first)) return false;
      kernel_->forget_process(static_cast<std::uint32_t>(entry.first));
      return true;
    });
    for (auto [pid, parent] : find_all_processes(kMaxDescendants)) TRY(add_child(pid, parent));
    if (processes_.all().size() >= kMaxDescendants)
      note(fmt::format("there are more than {} processes: the others are not sampled",
                       kMaxDescendants));
    return {};
  }

  // Setting a uprobe takes CAP_SYS_ADMIN: kept until torch's libraries are there to be probed, with
  // --all to the end. Some kernels want it for each watchpoint too; a thread gets those when it compiles.
  void drop_what_is_not_needed() {
    if (dropped_all_) return;
    dropped_all_ = options_.passive ||
                   (!options_.all &&
                    std::all_of(options_.targets.begin(), options_.targets.end(), [&](pid_t pid) {
                      const FollowedProcess* process = processes_.find(pid);
                      return !process || (process->probes_settled() && gpu_->probes_settled(pid));
                    }));
    drop_capabilities(!dropped_all_ || watchpoints_need_admin_);
  }

  void note(const std::string& sentence) {
    if (sentence.empty() || !hooks_.note || !noted_.insert(sentence).second) return;
    hooks_.note(sentence);
  }

  // True: nothing was left.
  bool consume(const DrainBudget& budget = {}) {
    return kernel_->consume([this](std::span<const std::byte> bytes) { router_->route(bytes); },
                            budget);
  }

  // What waited when we detached. Probes still send: not more than the buffers hold is read.
  void consume_rest() {
    const DrainBudget budget = {.time_ns = kLastReadNs, .bytes = kernel_->ring_capacity()};
    if (consume(budget)) return;
    kernel_->consume([this](std::span<const std::byte> bytes) { losses_.unread(bytes); }, budget);
  }

  // Before the first sample.
  bool may_look_more() const {
    return !(hooks_.stop_requested && hooks_.stop_requested()) &&
           monotonic_ns() - start_ns_ < kFirstLooksNs;
  }

  // Without it the recording is of time on the CPU alone.
  void load_off_cpu() {
    if (!options_.off_cpu) return;
    auto loaded = OffCpu::load(*kernel_, options_.off_cpu_threshold_ns);
    if (loaded)
      off_cpu_ = std::move(*loaded);
    else
      note(fmt::format("waits are not recorded: {}", loaded.error().what));
  }

  void attach_off_cpu() {
    if (!off_cpu_) return;
    for (auto& [pid, process] : processes_.all()) off_cpu_->add_threads(pid);
    if (auto attached = off_cpu_->attach(); !attached) {
      note(fmt::format("waits are not recorded: {}", attached.error().what));
      off_cpu_.reset();
    }
  }

  static void write_machine(const std::string& document, RecordingWriter& writer) {
    if (!document.empty())
      writer.fact({.kind = writer.string("machine"), .body = writer.blob(document)});
  }

  void finish_off_cpu() {
    if (!off_cpu_) return;
    off_cpu_->finish([this](pid_t pid) { return processes_.find(pid); }, *writer_);
    losses_.wait_stacks = off_cpu_->stacks_lost();
  }

  // Tables of what the targets map are there before the first sample, if that takes no longer than a wait
  // that goes unnoticed.
  void start_native_unwinding() {
    if (!options_.native) return;
    native_unwind_ = NativeSpaces::start(*kernel_, options_.native_limits);
    if (options_.launched) return;
    for (auto& [pid, process] : processes_.all()) native_unwind_->give(process);
    native_unwind_->settle(kTablesWait);
  }

  void look_for_gpus(std::uint64_t now, std::uint64_t until) {
    gpu_turns_.round(processes_.all(), [&](pid_t pid, FollowedProcess&) {
      gpu_->look(pid, now);
      return monotonic_ns() < until;
    });
  }

  void detach_gpus() {
    gpu_->begin_detach();
    const std::uint64_t until = monotonic_ns() + GpuCollector::kDetachNs;
    for (consume(); !gpu_->settled() && monotonic_ns() < until; consume()) {
      pollfd ring = {kernel_->ring_fd(), POLLIN, 0};
      poll(&ring, 1, kPollMs);
    }
    gpu_->finish_detach();
  }

  // Python just starting, torch imported later.
  void look_again(std::uint64_t now) {
    const std::uint64_t begin = monotonic_ns();
    look_for_gpus(now, begin + kLooksNs / 2);
    look_turns_.round(processes_.all(), [&](pid_t pid, FollowedProcess& process) {
      if (process.next_look_ns() == 0 || now < process.next_look_ns()) return true;
      look_at(pid, process, now);
      return monotonic_ns() - begin < kLooksNs;
    });
    for (auto& [pid, process] : processes_.all())
      if (std::string problem = process.take_problem(); targets_.contains(pid)) note(problem);
    if (native_unwind_) note(native_unwind_->take_problem());
    note(ReadLosses::of_program().take_note());
  }

  void look_at(pid_t pid, FollowedProcess& process, std::uint64_t now) {
    processes_.inherit(pid, *kernel_);
    if (!process.native_space() && native_unwind_) {
      native_unwind_->give(process);
      (void)process.tell_kernel(*kernel_);
    }
    auto found = process.discover(now, *kernel_);
    if (found) process.watch_torch(*writer_, *kernel_);
    drop_what_is_not_needed();
    if (!found && targets_.contains(pid) && process.next_look_ns() == 0)
      note(fmt::format("{}; only native function names can be shown", found.error().what));
    process.describe(*writer_);
  }

  bool reason_to_stop(std::uint64_t now, const Result<void>& written) {
    trailer_.reason = stop_.reason({.now_ns = now,
                                    .sampled_ns = now - sampling_since_ns_,
                                    .bytes = writer_->size(),
                                    .write_failed = !written,
                                    .targets_ended = targets_.all_ended()});
    return !trailer_.reason.empty();
  }

  SessionStatus status(std::uint64_t now) const {
    SessionStatus status;
    Counters counters = kernel_->counters();
    status.elapsed_ns = now - sampling_since_ns_;
    if (encoder_) {
      status.samples = encoder_->samples();
      status.in_compile = encoder_->in_compile();
    }
    status.lost = counters[DP_COUNT_RING_FULL] + counters[DP_COUNT_NO_SCRATCH];
    status.bytes = writer_ ? writer_->size() : 0;
    status.processes = processes_.all().size();
    return status;
  }

  void fill_trailer(std::uint64_t end) {
    Counters counters = kernel_->counters();
    for (auto& [pid, process] : processes_.all()) losses_.add(process);
    losses_.fill(counters);
    gpu_->fill(counters);
    trailer_.counters = named_counters(counters);
    trailer_.counters.merge(ReadLosses::of_program().named());
    trailer_.end_ns = end;
  }

  SessionOptions options_;
  SessionHooks hooks_;
  StopRules stop_;
  bool dropped_all_ = false;
  bool watchpoints_need_admin_ = false;
  std::unique_ptr<KernelSide> kernel_;
  std::unique_ptr<NativeSpaces> native_unwind_;  // writes maps of kernel_
  std::unique_ptr<OffCpu> off_cpu_;
  std::unique_ptr<GpuCollector> gpu_;
  SamplingEvents events_;
  CpuSampling sampling_;
  ProcessTable processes_;
  ProcessLives lives_;
  MachineCpu machine_;
  Turns<pid_t> look_turns_, gpu_turns_;
  Targets targets_;
  std::set<std::string> noted_;
  std::uint64_t start_ns_ = 0;
  std::uint64_t sampling_since_ns_ = 0;
  SessionLosses losses_;
  Trailer trailer_;
  RecordingWriter* writer_ = nullptr;
  SampleEncoder* encoder_ = nullptr;
  EventRouter* router_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Session>> Session::prepare(const SessionOptions& options,
                                                  SessionHooks hooks) {
  auto session = std::make_unique<LiveSession>(options, std::move(hooks));
  TRY(session->prepare());
  return std::unique_ptr<Session>(std::move(session));
}

}  // namespace dynprof
