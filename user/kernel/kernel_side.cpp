#include "user/kernel/kernel_side.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "process.skel.h"
#include "sampler.skel.h"
#include "sampler_plain.skel.h"
#include "uprobes.skel.h"
#include "user/kernel/bpf_object.h"
#include "user/kernel/pid_namespace.h"
#include "user/kernel/remote_pages.h"
#include "watchpoints.skel.h"

namespace dynprof {
void Watchpoint::arm(bool on) const {
  if (event_) ioctl(event_.get(), on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
}

namespace {

class LoadedKernelSide final : public KernelSide {
 public:
  LoadedKernelSide(Skeleton<sampler_bpf> sampler, Skeleton<process_bpf> process,
                   Skeleton<watchpoints_bpf> watchpoints, Skeleton<uprobes_bpf> uprobes,
                   std::unique_ptr<Uprobes> setter, const DirectMap& direct_map)
      : setter_(std::move(setter)),
        sampler_(std::move(sampler)),
        process_(std::move(process)),
        watchpoints_(std::move(watchpoints)),
        uprobes_(std::move(uprobes)),
        direct_map_(direct_map) {}

  Result<void> prepare(bool watchpoints) {
    if (watchpoints) {
      ASSIGN_OR_RETURN(armer_, WatchArmer::start(bpf_map__fd(uprobes_->maps.arm_requests)));
    }
    return rings_.add(bpf_map__fd(sampler_->maps.events));
  }

  Result<void> set_process(std::uint32_t pid, const dp_process& process) override {
    int rc = bpf_map__update_elem(sampler_->maps.processes, &pid, sizeof pid, &process,
                                  sizeof process, BPF_ANY);
    if (rc) return bpf_error(fmt::format("cannot follow process {}", pid), rc);
    return {};
  }

  Result<void> update_process(std::uint32_t pid, const dp_process& process) override {
    int rc = bpf_map__update_elem(sampler_->maps.processes, &pid, sizeof pid, &process,
                                  sizeof process, BPF_EXIST);
    if (rc && rc != -ENOENT) return bpf_error(fmt::format("cannot follow process {}", pid), rc);
    return {};
  }

  void forget_process(std::uint32_t pid) override {
    bpf_map__delete_elem(sampler_->maps.processes, &pid, sizeof pid, 0);
  }

  void add_code(std::uint32_t pid, std::uint64_t code, const dp_marker_code& marker) override {
    dp_marker_key key = {.code = code, .pid = pid, .pad = 0};
    // A full table only means that this code object is announced again.
    bpf_map__update_elem(sampler_->maps.known_codes, &key, sizeof key, &marker, sizeof marker,
                         BPF_ANY);
    if (marker.kind != DP_MARKER_NONE) sampler_->bss->marker_generation++;
  }

  void set_torch_thread(std::uint32_t tid, const dp_torch_thread& thread) override {
    // A full table only means that this thread has no source T.
    bpf_map__update_elem(sampler_->maps.torch_threads, &tid, sizeof tid, &thread, sizeof thread,
                         BPF_ANY);
  }

  std::uint32_t new_clock_slot() override {
    const std::uint32_t slot = next_clock_slot_++ % DP_CLOCK_SLOTS;
    // A struct clock_calls of bpf/clock_probe.bpf.h: of the process that had it before.
    const std::uint64_t none[2] = {};
    bpf_map__update_elem(uprobes_->maps.clock_calls, &slot, sizeof slot, none, sizeof none,
                         BPF_ANY);
    return slot;
  }

  std::uint32_t new_run_slot() override {
    const std::uint32_t slot = next_run_slot_++ % DP_CLOCK_SLOTS;
    __atomic_store_n(&uprobes_->bss->run_rates[slot].flags, 0U, __ATOMIC_SEQ_CST);
    __atomic_store_n(&uprobes_->bss->annotation_rates[slot].flags, 0U, __ATOMIC_SEQ_CST);
    return slot;
  }

  std::span<const dp_region_count> region_counts() const override {
    const std::uint32_t total = __atomic_load_n(&uprobes_->bss->region_total, __ATOMIC_RELAXED);
    return {uprobes_->bss->region_counts, std::min<std::uint32_t>(total, DP_MAX_REGIONS)};
  }

  const DirectMap& direct_map() const override { return direct_map_; }

  WatchArmer* armer() const override { return armer_.get(); }
  bool may_probe() const override { return setter_ != nullptr; }
  const Uprobes* uprobes() const override { return setter_.get(); }

  Result<Watchpoint> watch_inline(UniqueFd watchpoint, bool begin) override {
    return watch(begin ? watchpoints_->progs.inline_begun : watchpoints_->progs.inline_ended,
                 std::move(watchpoint));
  }

  Result<Uprobe> attach_probe(Probe probe, const UprobePlace& place,
                              std::string_view what) override {
    return setter_->attach(program_of(probe), place, fmt::format("cannot probe {}", what));
  }

  Result<void> attach_process_events() override {
    int rc = process_bpf::attach(process_.get());
    if (rc) return bpf_error("cannot attach to the scheduler's process tracepoints", rc);
    return {};
  }

  Result<Link> attach_sampler(UniqueFd perf_event) override {
    start_of_bpf_call();
    // On success the link owns the event's descriptor.
    Link link(bpf_program__attach_perf_event(sampler_->progs.sample_cpu, perf_event.get()));
    if (!link) return bpf_error("cannot attach the sampler to a perf event", errno);
    perf_event.release();
    return link;
  }

  void detach() override { process_bpf::detach(process_.get()); }

  int ring_fd() const override { return rings_.poll_fd(); }

  bool consume(const Visitor& visit, const DrainBudget& budget) override {
    return rings_.drain(visit, budget);
  }

  std::uint64_t ring_capacity() const override { return rings_.capacity(); }

  Counters counters() const override {
    Counters sums = {};
    std::vector<std::uint64_t> values(possible_cpus());
    for (std::uint32_t i = 0; i < DP_COUNTER_COUNT; i++) {
      if (bpf_map__lookup_elem(sampler_->maps.counters, &i, sizeof i, values.data(),
                               values.size() * sizeof values[0], 0))
        continue;
      for (std::uint64_t value : values) sums[i] += value;
    }
    return sums;
  }

  int map_fd(const char* name) const override {
    return bpf_object__find_map_fd_by_name(sampler_->obj, name);
  }

  Result<void> add_ring(int map_fd) override { return rings_.add(map_fd); }

 private:
  static Result<Watchpoint> watch(bpf_program* program, UniqueFd watchpoint) {
    // On success the link owns the descriptor it was given.
    UniqueFd ours(fcntl(watchpoint.get(), F_DUPFD_CLOEXEC, 0));
    if (!ours) return bpf_error("cannot attach to a hardware watchpoint", errno);
    Link link(bpf_program__attach_perf_event(program, watchpoint.get()));
    if (!link) return bpf_error("cannot attach to a hardware watchpoint", errno);
    watchpoint.release();
    return Watchpoint(std::move(link), std::move(ours));
  }
  bpf_program* program_of(Probe probe) {
    auto& programs = uprobes_->progs;
    switch (probe) {
      case Probe::kRegionEntered:
        return programs.region_entered;
      case Probe::kRegionLeft:
        return programs.region_left;
      case Probe::kLookupEntered:
        return programs.lookup_entered;
      case Probe::kNodeEntered:
        return programs.node_entered;
      case Probe::kNodeLeft:
        return programs.node_left;
      case Probe::kNodeRaised:
        return programs.node_raised;
      case Probe::kRangePushed:
        return programs.range_pushed;
      case Probe::kRangePopped:
        return programs.range_popped;
      case Probe::kAttributesPushed:
        return programs.attributes_pushed;
      case Probe::kDomainPushed:
        return programs.domain_pushed;
      case Probe::kDomainPopped:
        return programs.domain_popped;
      case Probe::kRecordEntered:
        return programs.record_entered;
      case Probe::kRecordMade:
        return programs.record_made;
      case Probe::kRecordEnded:
        return programs.record_ended;
      case Probe::kClockRead:
        break;
    }
    return programs.clock_read;
  }

  std::unique_ptr<Uprobes> setter_;
  Skeleton<sampler_bpf> sampler_;
  Skeleton<process_bpf> process_;
  Skeleton<watchpoints_bpf> watchpoints_;
  Skeleton<uprobes_bpf> uprobes_;
  std::uint32_t next_clock_slot_ = 0, next_run_slot_ = 0;
  DirectMap direct_map_;
  std::unique_ptr<WatchArmer> armer_;
  EventRings rings_;
};

// The maps that the other objects share are the sampler's.
auto maps_of(const sampler_bpf& sampler) {
  return
      [&sampler](const char* name) { return bpf_object__find_map_fd_by_name(sampler.obj, name); };
}

Result<Skeleton<sampler_bpf>> load_sampler(const KernelSideOptions& options,
                                           const PidNamespace& ours, const DirectMap& direct_map) {
  constexpr const char* kPrograms = "sampling";
  ASSIGN_OR_RETURN(auto sampler,
                   (open_object<sampler_bpf, sampler_plain_bpf>(kPrograms, direct_map.plain)));
  bpf_map__set_max_entries(sampler->maps.events, static_cast<std::uint32_t>(options.ring_bytes));
  size_by_cpus({sampler->maps.code_caches, sampler->maps.rule_caches});
  sampler->rodata->wakeup_bytes = options.ring_bytes / 8;
  set_pid_namespace(sampler->rodata, ours);
  set_direct_map(sampler->rodata, direct_map);
  TRY(load_object(kPrograms, *sampler));
  return sampler;
}

Result<Skeleton<process_bpf>> load_process(const KernelSideOptions& options,
                                           const PidNamespace& ours, const sampler_bpf& sampler) {
  constexpr const char* kPrograms = "process";
  ASSIGN_OR_RETURN(auto process, open_object<process_bpf>(kPrograms));
  auto& maps = process->maps;
  TRY(share_maps({maps.processes, maps.events, maps.counters}, maps_of(sampler)));
  set_pid_namespace(process->rodata, ours);
  process->rodata->keep_command_lines = options.command_lines;
  TRY(load_object(kPrograms, *process));
  return process;
}

// Programs that include torch_state.bpf.h: they share all that it uses.
template <class S>
Result<Skeleton<S>> load_torch_programs(const char* programs, const KernelSideOptions& options,
                                        const PidNamespace& ours, const sampler_bpf& sampler,
                                        const Uprobes* uprobes) {
  ASSIGN_OR_RETURN(auto skeleton, open_object<S>(programs));
  if (uprobes) uprobes->prepare(skeleton->obj);
  auto& maps = skeleton->maps;
  TRY(share_maps({maps.processes, maps.events, maps.counters, maps.torch_threads, maps.code_caches,
                  maps.known_codes, maps.phase_edges},
                 maps_of(sampler)));
  set_pid_namespace(skeleton->rodata, ours);
  if constexpr (std::is_same_v<S, uprobes_bpf>)
    skeleton->rodata->count_all_runs = options.count_all_runs;
  TRY(load_object(programs, *skeleton));
  return skeleton;
}

}  // namespace

void LinkDeleter::operator()(bpf_link* link) const { bpf_link__destroy(link); }

Result<std::unique_ptr<KernelSide>> KernelSide::load(const KernelSideOptions& options) {
  std::unique_ptr<Uprobes> setter;
  if (options.probes) {
    ASSIGN_OR_RETURN(setter, Uprobes::start());
  }
  ASSIGN_OR_RETURN(const PidNamespace ours, find_pid_namespace());
  DirectMap direct_map = options.direct_map ? find_direct_map() : DirectMap();
  auto sampler = load_sampler(options, ours, direct_map);
  if (!sampler && direct_map.base != 0) {
    direct_map = {};  // this kernel wants it otherwise: slower, but the same
    sampler = load_sampler(options, ours, direct_map);
  }
  if (!sampler) {
    direct_map.plain = true;
    sampler = load_sampler(options, ours, direct_map);
  }
  if (!sampler) return sampler.error();
  // libbpf asks the kernel once whether arrays can be mapped; refused that, it goes on without.
  const auto not_mapped = [] {
    return error("the kernel refused a BPF array that can be mapped into memory",
                 "Linux has them since 5.5: it lacked memory or permission; try again");
  };
  if ((*sampler)->bss == nullptr) return not_mapped();

  ASSIGN_OR_RETURN(auto process, load_process(options, ours, **sampler));
  ASSIGN_OR_RETURN(auto watchpoints, load_torch_programs<watchpoints_bpf>(
                                         "watchpoint", options, ours, **sampler, setter.get()));
  ASSIGN_OR_RETURN(auto uprobes, load_torch_programs<uprobes_bpf>("probe", options, ours, **sampler,
                                                                  setter.get()));
  if (uprobes->bss == nullptr) return not_mapped();
  if (direct_map.base != 0) {
    // Where the kernel refuses it, memory is read by system calls.
    if (auto reader = open_remote_pages(direct_map, ours))
      InPlaceReader::install(std::move(*reader));
  }
  auto loaded = std::make_unique<LoadedKernelSide>(*std::move(sampler), std::move(process),
                                                   std::move(watchpoints), std::move(uprobes),
                                                   std::move(setter), direct_map);
  TRY(loaded->prepare(options.watchpoints && options.probes));
  return std::unique_ptr<KernelSide>(std::move(loaded));
}

}  // namespace dynprof
