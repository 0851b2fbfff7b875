#include "symbolizer/attribution/gpu_work.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include "symbolizer/attribution/driver_kernel_names.h"
#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/generated.h"
#include "symbolizer/attribution/gpu_names.h"
#include "symbolizer/base/hash.h"

namespace dynprof {
namespace {

// Runs nest a few deep: a region, its backward, a region in a hook of that.
constexpr std::size_t kMaxNesting = 64;
constexpr std::string_view kGraphRecord = "CUDAGraphNode.record";

struct CallKey {
  std::int32_t pid;
  std::uint32_t correlation;
  bool operator==(const CallKey&) const = default;
};
struct CallKeyHash {
  std::size_t operator()(const CallKey& key) const {
    return hash_u64(std::uint64_t{static_cast<std::uint32_t>(key.pid)} << 32 | key.correlation);
  }
};

// The innermost run around a moment.
std::uint32_t run_at(const std::vector<RegionRun>& runs, std::uint64_t time_ns) {
  auto after = std::partition_point(runs.begin(), runs.end(),
                                    [&](const RegionRun& run) { return run.begin_ns <= time_ns; });
  for (std::size_t i = 0; i < kMaxNesting && after != runs.begin(); ++i) {
    --after;
    if (time_ns < after->end_ns) return static_cast<std::uint32_t>(after - runs.begin());
  }
  return kNoIndex;
}

using AnnouncedCalls = std::unordered_map<CallKey, std::size_t, CallKeyHash>;

// Threads as their process numbers them, in a container in another way than outside: calls that were announced have both
// numbers. A thread that none of them is of has the same number, or is none we know.
class TargetThreads {
 public:
  TargetThreads(const Tables& tables, const std::vector<GpuCall>& calls,
                const AnnouncedCalls& announced) {
    for (ThreadId id = 0; id < tables.threads.size(); ++id)
      threads_[{tables.threads[id].pid, static_cast<std::uint32_t>(tables.threads[id].tid)}] = id;
    for (const GpuRecord& row : tables.gpu_records) {
      if (row.record.kind != DYNPROF_GPU_CALL_RECORD) continue;
      const auto known = announced.find({row.pid, row.record.correlation});
      if (known != announced.end())
        threads_[{row.pid, row.record.thread}] = calls[known->second].thread;
    }
  }

  ThreadId find(std::int32_t pid, std::uint32_t number) const {
    const auto at = threads_.find({pid, number});
    return at == threads_.end() ? kNoThread : at->second;
  }

 private:
  std::map<std::pair<std::int32_t, std::uint32_t>, ThreadId> threads_;
};

struct GeneratedBy {
  TraceId id;
  bool backward = false;
  bool operator==(const GeneratedBy&) const = default;
};

// What the generated files on stacks say of runs without an id, for the calls in them that have no stack.
class RunsWithoutId {
 public:
  using Run = std::pair<std::size_t, std::uint32_t>;  // row of Spans::threads(), index of its runs

  void add(const Run& run, const GeneratedBy& by) {
    if (run.second == kNoIndex) return;
    const auto [at, added] = runs_.try_emplace(run, by);
    if (!added && !(at->second == by)) at->second = {};
  }
  // Not valid: unknown, or they disagree.
  GeneratedBy of(const Run& run) const {
    const auto at = runs_.find(run);
    return at == runs_.end() ? GeneratedBy{} : at->second;
  }

 private:
  std::map<Run, GeneratedBy> runs_;
};

// Per stack, whose generated file its innermost frame of such a file is in; not valid: it has none.
std::vector<GeneratedBy> generated_on_stacks(const Attribution& attribution) {
  const Tables& tables = attribution.recording().tables();
  std::vector<GeneratedBy> of_stack(tables.stacks.size());
  // Frames of generated code are named by its copy.
  std::unordered_map<std::string, GeneratedBy> of_file;
  Generated generated(attribution);
  for (const GeneratedCopy& file : generated.files())
    if (is_valid(file.id)) of_file[file.path()] = {file.id, file.direction == "backward"};
  if (of_file.empty()) return of_stack;
  const ResolvedFrames& frames = attribution.frames();
  std::vector<GeneratedBy> of_frame(frames.size());
  for (FrameId id = 0; id < frames.size(); ++id) {
    auto found = frames[id].generated ? of_file.find(std::string(frames[id].file)) : of_file.end();
    if (found != of_file.end()) of_frame[id] = found->second;
  }
  for (StackId id = 1; id < tables.stacks.size(); ++id) {
    const StackNode& node = tables.stacks[id];
    if (is_valid(of_frame[node.frame].id))
      of_stack[id] = of_frame[node.frame];
    else if (node.caller < id)
      of_stack[id] = of_stack[node.caller];
  }
  return of_stack;
}

}  // namespace

GpuWork::GpuWork(const Attribution& attribution) {
  const Tables& tables = attribution.recording().tables();
  if (tables.gpu_launches.empty() && tables.gpu_records.empty()) return;
  tables_ = &tables;
  add_calls(attribution);
  std::stable_sort(calls_.begin(), calls_.end(),
                   [](const GpuCall& a, const GpuCall& b) { return a.begin_ns < b.begin_ns; });
  add_items(tables);
  find_compiles(attribution);
  find_graph_records(attribution);
}

std::string_view GpuWork::device_name(std::int32_t pid, std::uint32_t device) const {
  auto at = devices_.find({pid, device});
  return at == devices_.end() ? std::string_view() : tables_->strings[at->second->record.name];
}

std::optional<GpuUuid> GpuWork::device_uuid(std::int32_t pid, std::uint32_t device) const {
  const auto at = devices_.find({pid, device});
  if (at == devices_.end()) return std::nullopt;
  const GpuUuid uuid = std::to_array(at->second->record.gpu.uuid);
  if (uuid == GpuUuid{}) return std::nullopt;
  return uuid;
}

void GpuWork::add_calls(const Attribution& attribution) {
  const Tables& tables = attribution.recording().tables();
  GpuNames names(attribution);
  DriverKernelNames driver;
  std::vector<std::pair<std::size_t, std::string_view>> by_driver;  // of which call
  AnnouncedCalls announced;
  for (const GpuLaunch& launch : tables.gpu_launches) {
    GpuCall call;
    call.pid = tables.threads[launch.thread].pid;
    call.thread = launch.thread;
    call.correlation = launch.correlation;
    call.call = launch.call;
    call.call_class = gpu_call_class(launch.call);
    call.begin_ns = launch.time_ns;
    call.stack = launch.stack;
    call.context = launch.context;
    call.announced = true;
    call.bare = launch.flags & kGpuCallBare;
    const auto take_leaf = [&](std::uint8_t flags) -> std::optional<FrameId> {
      if ((launch.flags & flags) == 0 || call.stack == 0 || call.stack >= tables.stacks.size())
        return std::nullopt;
      const StackNode& leaf = tables.stacks[call.stack];
      call.stack = leaf.caller;
      return leaf.frame;
    };
    if (const auto function = take_leaf(kGpuCallStub)) call.kernel = names.of_stub(*function);
    if (const auto caller = take_leaf(kGpuCallCaller)) call.caller = names.library(*caller);
    const auto named = take_leaf(kGpuCallNamed);
    const std::string_view drivers = named ? names.of_stub(*named) : std::string_view();
    if (!drivers.empty() && !call.kernel.empty()) driver.compare(call.pid, drivers, call.kernel);
    if (call.bare && call.kernel.empty() && call.call_class == DYNPROF_GPU_CLASS_LAUNCH) {
      call.kernel = names.of_stack(call.stack);
      if (!drivers.empty()) {
        driver.compare_line(call.pid, drivers, call.kernel);
        by_driver.emplace_back(calls_.size(), drivers);
      }
    }
    if (!call.bare) announced[{call.pid, call.correlation}] = calls_.size();
    calls_.push_back(call);
  }
  for (const auto& [call, name] : by_driver)
    if (driver.usable(calls_[call].pid)) calls_[call].kernel = name;
  for (GpuCall& call : calls_)
    if (!call.kernel.empty()) call.caller = {};
  const TargetThreads threads(tables, calls_, announced);
  for (const GpuRecord& row : tables.gpu_records) {
    const dynprof_gpu_record& record = row.record;
    if (record.kind == DYNPROF_GPU_DEVICE) devices_[{row.pid, record.device}] = &row;
    if (record.kind != DYNPROF_GPU_CALL_RECORD) continue;
    auto known = announced.find({row.pid, record.correlation});
    if (known == announced.end()) {
      known = announced.emplace(CallKey{row.pid, record.correlation}, calls_.size()).first;
      GpuCall& call = calls_.emplace_back();
      call.pid = row.pid;
      call.correlation = record.correlation;
      call.call = record.call.call;
      call.begin_ns = record.start_ns;
      call.thread = threads.find(row.pid, record.thread);
    }
    GpuCall& call = calls_[known->second];
    call.call_class = record.call.call_class;
    call.end_ns = record.end_ns;
  }
}

void GpuWork::add_items(const Tables& tables) {
  std::unordered_map<CallKey, std::uint32_t, CallKeyHash> of_call;
  for (std::uint32_t i = 0; i < calls_.size(); ++i)
    if (!calls_[i].bare) of_call[{calls_[i].pid, calls_[i].correlation}] = i;
  for (const GpuRecord& row : tables.gpu_records) {
    const bool work = is_gpu_work(row.record);
    if (!work && row.record.kind != DYNPROF_GPU_SYNC) continue;
    GpuItem item{&row};
    auto call = of_call.find({row.pid, row.record.correlation});
    if (call != of_call.end()) {
      item.call = call->second;
      calls_[item.call].works += work;
    } else {
      orphans_ += work;
    }
    items_.push_back(item);
  }
  std::stable_sort(items_.begin(), items_.end(), [](const GpuItem& a, const GpuItem& b) {
    return a.row->record.start_ns < b.row->record.start_ns;
  });
}

void GpuWork::find_compiles(const Attribution& attribution) {
  const Tables& tables = attribution.recording().tables();
  const Spans& spans = attribution.spans();
  const ExactCompiles& exact = attribution.exact();
  const std::vector<GeneratedBy> by_file = generated_on_stacks(attribution);
  RunsWithoutId runs;
  for (GpuCall& call : calls_) {
    if (call.thread == kNoThread) continue;
    const std::size_t row = spans.row_of(call.thread);
    call.run = run_at(spans.threads()[row].runs, call.begin_ns);
    if (call.run != kNoIndex) {
      call.run_begin_ns = spans.threads()[row].runs[call.run].begin_ns;
      call.run_end_ns = spans.threads()[row].runs[call.run].end_ns;
    }
    const TorchState& torch = tables.contexts[call.context].torch;
    if (torch.status == TorchStatus::kRead) {
      const TraceId open{torch.autograd_id, torch.frame_id, torch.compile_id};
      if (is_valid(open)) {
        call.id = open;
        call.compiling = true;
        continue;
      }
    }
    // Not announced: torch was not asked.
    const std::uint32_t around = call.announced ? kNoIndex : exact.at(row, call.begin_ns).compile;
    if (around != kNoIndex && is_valid(exact.all()[around].id)) {
      call.id = exact.all()[around].id;
      call.compiling = true;
      continue;
    }
    if (call.run != kNoIndex) {
      const RegionRun& run = spans.threads()[row].runs[call.run];
      call.id = run.id;
      call.backward = run.backward;
    }
    // The name of a run need not have an id.
    if (!is_valid(call.id) && call.stack < by_file.size() && is_valid(by_file[call.stack].id)) {
      call.id = by_file[call.stack].id;
      call.backward = by_file[call.stack].backward;
      runs.add({row, call.run}, by_file[call.stack]);
    }
  }
  for (GpuCall& call : calls_) {
    if (call.announced || is_valid(call.id) || call.run == kNoIndex) continue;
    const GeneratedBy by = runs.of({spans.row_of(call.thread), call.run});
    call.id = by.id;
    call.backward = by.backward;
  }
}

void GpuWork::find_graph_records(const Attribution& attribution) {
  const Tables& tables = attribution.recording().tables();
  for (const ThreadSpans& thread : attribution.spans().threads()) {
    for (const PhaseSpan& phase : thread.phases) {
      if (tables.strings[phase.name] != kGraphRecord) continue;
      const std::uint32_t run = run_at(thread.runs, phase.begin_ns);
      if (run == kNoIndex || !is_valid(thread.runs[run].id)) continue;
      graph_records_.push_back({.pid = tables.threads[phase.thread].pid,
                                .id = thread.runs[run].id,
                                .backward = thread.runs[run].backward,
                                .ns = phase.end_ns - std::min(phase.begin_ns, phase.end_ns)});
    }
  }
}

}  // namespace dynprof
