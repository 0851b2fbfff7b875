#include "user/waits/off_cpu.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "offcpu.skel.h"
#include "offcpu_plain.skel.h"
#include "user/kernel/bpf_object.h"
#include "user/kernel/pid_namespace.h"
#include "user/target/clock.h"
#include "user/target/thread_run_time.h"
#include "user/waits/wait_kind.h"
#include "user/waits/wait_stacks.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxThreads = DP_THREAD_TIMES;

struct BtfDeleter {
  void operator()(btf* types) const { btf__free(types); }
};

// Whether sched_switch reports the state of the thread that leaves, as its last argument: Linux 5.19 and
// later. Its arguments are those of `btf_trace_sched_switch`, behind a pointer of the tracepoint's own.
bool kernel_reports_states() {
  constexpr unsigned kArguments = 5;  // that pointer, preempt, prev, next, prev_state
  std::unique_ptr<btf, BtfDeleter> types(btf__load_vmlinux_btf());
  if (!types) return false;
  const int id = btf__find_by_name_kind(types.get(), "btf_trace_sched_switch", BTF_KIND_TYPEDEF);
  const btf_type* type = id > 0 ? btf__type_by_id(types.get(), static_cast<unsigned>(id)) : nullptr;
  for (int i = 0; i < 2 && type && !btf_is_func_proto(type); ++i)
    type = btf__type_by_id(types.get(), type->type);
  if (!type || !btf_is_func_proto(type) || btf_vlen(type) != kArguments) return false;
  const btf_type* last = btf__type_by_id(types.get(), btf_params(type)[kArguments - 1].type);
  return last && btf_is_int(last) && last->size == 4;
}

bool has_member(const btf* types, const char* of, const char* name) {
  const int id = btf__find_by_name_kind(types, of, BTF_KIND_STRUCT);
  const btf_type* type = id > 0 ? btf__type_by_id(types, static_cast<unsigned>(id)) : nullptr;
  for (unsigned i = 0; type && i < btf_vlen(type); ++i)
    if (std::strcmp(btf__name_by_offset(types, btf_members(type)[i].name_off), name) == 0)
      return true;
  return false;
}

// Whether the scheduler keeps how long a task was ready to run, where our program finds it.
bool kernel_keeps_delays() {
  std::unique_ptr<btf, BtfDeleter> types(btf__load_vmlinux_btf());
  return types && has_member(types.get(), "sched_info", "last_queued") &&
         has_member(types.get(), "sched_entity", "cfs_rq") &&
         has_member(types.get(), "cfs_rq", "rq");
}

// Where the kernel's __schedule is; 0: not shown.
std::uint64_t find_schedule() {
  std::ifstream symbols("/proc/kallsyms");
  std::string line;
  while (std::getline(symbols, line)) {
    if (!line.ends_with(" __schedule")) continue;
    std::uint64_t address = 0;
    std::from_chars(line.data(), line.data() + line.size(), address, 16);
    return address;
  }
  return 0;
}

// What a thread that already existed at attach does: its system call, as /proc shows it.
dp_thread_time thread_now(pid_t pid, pid_t tid, std::uint64_t now_ns) {
  dp_thread_time place = {};
  place.tid = static_cast<std::uint32_t>(tid);
  place.pid = static_cast<std::uint32_t>(pid);
  place.out_ns = now_ns;
  place.flags = DP_WAIT_AT_ATTACH;
  place.call = -1;
  place.state = 1;
  std::ifstream file(fmt::format("/proc/{}/task/{}/syscall", pid, tid));
  std::string call, argument;
  file >> call >> argument;
  if (call == "running") place.flags |= DP_WAIT_PREEMPTED;
  place.exec_ns = thread_run_time_ns(pid, tid).value_or(0);
  int number = -1;
  std::from_chars(call.data(), call.data() + call.size(), number);
  place.call = number;
  std::uint64_t fd = 0;
  if (dp_call_names_file(number) && argument.size() > 2 &&
      std::from_chars(argument.data() + 2, argument.data() + argument.size(), fd, 16).ec ==
          std::errc()) {
    struct stat info {};
    if (::stat(fmt::format("/proc/{}/fd/{}", pid, fd).c_str(), &info) == 0)
      place.mode = static_cast<std::uint16_t>(info.st_mode);
  }
  return place;
}

std::vector<pid_t> thread_ids(pid_t pid) {
  std::vector<pid_t> found;
  std::error_code failed;
  const std::string path = fmt::format("/proc/{}/task", pid);
  for (const auto& entry : std::filesystem::directory_iterator(path, failed)) {
    pid_t tid = 0;
    const std::string name = entry.path().filename();
    std::from_chars(name.data(), name.data() + name.size(), tid);
    if (tid > 0) found.push_back(tid);
  }
  return found;
}

class LoadedOffCpu final : public OffCpu {
 public:
  explicit LoadedOffCpu(Skeleton<offcpu_bpf> skeleton)
      : skeleton_(std::move(skeleton)), schedule_(find_schedule()) {}

  void add_threads(pid_t pid) override {
    for (const pid_t tid : thread_ids(pid)) {
      if (found_.size() >= kMaxThreads) return;
      const dp_thread_time place = thread_now(pid, tid, monotonic_ns());
      const std::uint32_t slot = place.tid & (DP_THREAD_TIMES - 1);
      if (bpf_map__update_elem(skeleton_->maps.thread_times, &slot, sizeof slot, &place,
                               sizeof place, BPF_ANY) == 0)
        found_.push_back(place);
    }
  }

  Result<void> attach() override {
    for (auto [program, name] : {std::pair(skeleton_->progs.thread_woken, "sched_wakeup"),
                                 std::pair(skeleton_->progs.thread_ends, "sched_process_exit"),
                                 std::pair(skeleton_->progs.thread_switched, "sched_switch")}) {
      if (!bpf_program__autoload(program)) continue;
      bpf_link* link = bpf_program__attach_raw_tracepoint(program, name);
      if (!link) {
        detach();
        return bpf_error(fmt::format("cannot attach to the tracepoint {}", name), errno);
      }
      links_.emplace_back(link);
    }
    return {};
  }

  void tick() override { skeleton_->bss->marker_generation++; }

  void on_stack(const SampleView& view, FollowedProcess& process, SampleEncoder& encoder) override {
    stacks_.add(view.sample.stack, encoder.wait_stack(view, process, schedule_));
  }

  void on_wait(const dp_wait_event& event, FollowedProcess* process,
               RecordingWriter& writer) override {
    record(event, process, writer, 0);
  }

  void write_open(FollowedProcess& process, RecordingWriter& writer) override {
    const auto pid = static_cast<std::uint32_t>(process.pid());
    const std::uint64_t now_ns = monotonic_ns();
    std::size_t looked_at = 0;
    for (const pid_t tid : thread_ids(process.pid())) {
      if (++looked_at > kMaxOpen) return;
      const std::uint32_t slot = static_cast<std::uint32_t>(tid) & (DP_THREAD_TIMES - 1);
      dp_thread_time place = {};
      if (bpf_map__lookup_elem(skeleton_->maps.thread_times, &slot, sizeof slot, &place,
                               sizeof place, 0) != 0 ||
          place.tid != static_cast<std::uint32_t>(tid) || place.pid != pid)
        continue;
      write_wait_until(now_ns, place, process, writer);
    }
  }

  void detach() override {
    links_.clear();
    end_ns_ = monotonic_ns();
  }

  void finish(ProcessTable& processes, RecordingWriter& writer) override {
    for (const dp_thread_time& place : found_) {
      dp_wait_event mark = event_of(place, place.out_ns);
      mark.begin_ns = place.out_ns;
      mark.flags = DP_WAIT_MARK;
      record(mark, processes.find(static_cast<pid_t>(place.pid)), writer, 0);
    }
    write_sums(processes, writer);
    for (std::uint32_t slot = 0; slot < DP_THREAD_TIMES; ++slot) {
      dp_thread_time place = {};
      if (bpf_map__lookup_elem(skeleton_->maps.thread_times, &slot, sizeof slot, &place,
                               sizeof place, 0) != 0 ||
          place.tid == 0 || (place.flags & DP_THREAD_ENDED))
        continue;
      if (place.sum.count > 0)
        record(place.sum, processes.find(static_cast<pid_t>(place.pid)), writer, 0);
      FollowedProcess* process = processes.find(static_cast<pid_t>(place.pid));
      if (process) write_last(place, *process, writer);
    }
  }

  std::uint64_t stacks_lost() const override { return stacks_lost_; }

 private:
  static dp_wait_event event_of(const dp_thread_time& place, std::uint64_t end_ns) {
    dp_wait_event event = {};
    event.header.time_ns = end_ns;
    event.header.pid = place.pid;
    event.header.tid = place.tid;
    event.begin_ns = place.out_ns;
    event.cpu_ns = place.cpu_ns;
    event.stack = place.stack;
    event.count = 1;
    event.call = place.call;
    event.mode = place.mode;
    event.flags = place.flags;
    event.state = place.state;
    return event;
  }

  // False: the thread is on a CPU.
  bool write_wait_until(std::uint64_t end_ns, const dp_thread_time& place, FollowedProcess& process,
                        RecordingWriter& writer) {
    if (place.out_ns == 0 || place.out_ns >= end_ns) return false;
    dp_wait_event event = event_of(place, end_ns);
    event.length_ns = end_ns - place.out_ns;
    if (place.flags & DP_WAIT_PREEMPTED)
      event.runnable_ns = event.length_ns;
    else if (place.wake_ns > place.out_ns && place.wake_ns < end_ns)
      event.runnable_ns = end_ns - place.wake_ns;
    record(event, &process, writer, kWaitAtEnd);
    return true;
  }

  // What a thread does when the recording ends: it runs, or its wait goes on.
  void write_last(const dp_thread_time& place, FollowedProcess& process, RecordingWriter& writer) {
    if (write_wait_until(end_ns_, place, process, writer)) return;
    dp_wait_event event = event_of(place, end_ns_);
    event.begin_ns = end_ns_;
    event.flags = DP_WAIT_MARK;
    if (place.in_ns != 0 && place.in_ns < end_ns_) event.cpu_ns += end_ns_ - place.in_ns;
    record(event, &process, writer, 0);
  }

  void write_sums(ProcessTable& processes, RecordingWriter& writer) {
    auto sums = std::make_unique<dp_wait_sums>();
    for (std::uint32_t cpu = 0; cpu < possible_cpus(); ++cpu) {
      if (bpf_map__lookup_elem(skeleton_->maps.wait_sums, &cpu, sizeof cpu, sums.get(),
                               sizeof *sums, 0) != 0)
        continue;
      for (const dp_wait_event& event : sums->slots)
        if (event.count > 0)
          record(event, processes.find(static_cast<pid_t>(event.header.pid)), writer, 0);
    }
  }

  ThreadId thread_of(const dp_wait_event& event, FollowedProcess* process,
                     RecordingWriter& writer) {
    const auto tid = static_cast<pid_t>(event.header.tid);
    if (process) return process->identity().threads().of(tid, writer);
    return writer.thread(
        {static_cast<std::int32_t>(event.header.pid), static_cast<std::int32_t>(tid), 0});
  }

  void record(const dp_wait_event& event, FollowedProcess* process, RecordingWriter& writer,
              std::uint8_t flags) {
    Wait wait;
    wait.thread = thread_of(event, process, writer);
    wait.kind = wait_kind(event);
    wait.begin_ns = event.begin_ns;
    wait.span_ns = event.header.time_ns - event.begin_ns;
    wait.length_ns = std::min<std::uint64_t>(event.length_ns, wait.span_ns);
    wait.runnable_ns = std::min<std::uint64_t>(event.runnable_ns, wait.length_ns);
    wait.cpu_ns = event.cpu_ns;
    wait.count = event.count;
    wait.flags = flags;
    if ((event.flags & DP_WAIT_AT_ATTACH) && wait.kind != WaitKind::kNone)
      wait.flags |= kWaitAtAttach;
    if (event.stack != 0 && wait.kind != WaitKind::kNone) {
      if (const WaitStack* stack = stacks_.find(event.stack)) {
        wait.stack = stack->stack;
        wait.context = stack->context;
        wait.flags = static_cast<std::uint8_t>(wait.flags | stack->flags);
      } else {
        stacks_lost_ += event.count;
      }
    }
    writer.wait(wait);
  }

  Skeleton<offcpu_bpf> skeleton_;
  std::uint64_t schedule_;
  std::vector<Link> links_;
  std::vector<dp_thread_time> found_;
  WaitStacks stacks_;
  std::uint64_t end_ns_ = 0;
  std::uint64_t stacks_lost_ = 0;
};

// Without `delays`, the moment a thread is woken up is traced instead.
Result<std::unique_ptr<OffCpu>> load_programs(KernelSide& kernel, std::uint64_t threshold_ns,
                                              bool delays) {
  constexpr const char* kPrograms = "off-CPU";
  ASSIGN_OR_RETURN(auto skeleton, (open_object<offcpu_bpf, offcpu_plain_bpf>(
                                      kPrograms, kernel.direct_map().plain)));
  auto& maps = skeleton->maps;
  // Not code_caches: its entries would be of another generation of markers.
  TRY(share_maps({maps.processes, maps.events, maps.counters, maps.torch_threads, maps.known_codes,
                  maps.unwind_tables, maps.native_spaces},
                 [&kernel](const char* name) { return kernel.map_fd(name); }));
  size_by_cpus({maps.code_caches, maps.rule_caches, maps.wait_memos, maps.wait_sums});
  ASSIGN_OR_RETURN(const PidNamespace ours, find_pid_namespace());
  set_pid_namespace(skeleton->rodata, ours);
  set_direct_map(skeleton->rodata, kernel.direct_map());
  skeleton->rodata->wait_threshold_ns = threshold_ns;
  skeleton->rodata->scheduler_keeps_delays = delays;
  bpf_program__set_autoload(skeleton->progs.thread_woken, !delays);
  bpf_program__set_autoload(skeleton->progs.thread_ends, ours.level > 0);
  TRY(load_object(kPrograms, *skeleton));
  return std::unique_ptr<OffCpu>(std::make_unique<LoadedOffCpu>(std::move(skeleton)));
}

}  // namespace

Result<std::unique_ptr<OffCpu>> OffCpu::load(KernelSide& kernel, std::uint64_t threshold_ns) {
  if (!kernel_reports_states())
    return error("this kernel's sched_switch does not report why a thread leaves the CPU");
  if (kernel_keeps_delays()) {
    if (auto loaded = load_programs(kernel, threshold_ns, true)) return loaded;
  }
  return load_programs(kernel, threshold_ns, false);
}

}  // namespace dynprof
