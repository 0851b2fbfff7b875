#include "user/gpu/gpu_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>

#include "symbolizer/attribution/gpu_work.h"
#include "symbolizer/base/amounts.h"
#include "user/gpu/gpu_view.h"
#include "user/gpu/library_path.h"
#include "user/kernel/event_view.h"
#include "user/target/process.h"
#include "user/target/torch_worker.h"

namespace dynprof {
namespace {

// CUDA is mapped when torch is imported, the driver and the library when CUDA is first used.
constexpr std::uint64_t kSoonNs = 100'000'000;
constexpr std::uint64_t kLaterNs = 1'000'000'000;
// A look takes some 20 us: all of them together 10 and 2 % of a CPU.
constexpr std::uint64_t kSoonPerProcessNs = 200'000;
constexpr std::uint64_t kLaterPerProcessNs = 1'000'000;
constexpr unsigned kSoonLooks = 50;
// So many looks apart all mappings are read: a library may have taken the place of one of the same size.
constexpr unsigned kLooksWhole = 10;

// A stack of each costs the process some 2 % of its time then.
constexpr std::uint64_t kManyLaunches = 5'000;

// Until then CUPTI may refuse the library, and probes on calls are set instead.
bool has_answered(const std::optional<dynprof_gpu_status>& status) {
  return status && status->code != DYNPROF_GPU_OFF && status->code != DYNPROF_GPU_STARTING;
}

}  // namespace

GpuCollector::GpuCollector(const GpuOptions& options, const std::vector<pid_t>& targets,
                           KernelSide& kernel, Note note)
    : mode_(options.mode),
      launch_stacks_(options.launch_stacks),
      targets_(targets),
      kernel_side_(kernel),
      note_(std::move(note)) {
  if (mode_ == GpuMode::kOn && !targets_.empty())
    loader_ = std::make_unique<LibraryLoader>(options.ranks, targets_);
}

Result<void> GpuCollector::load_libraries(bool children,
                                          const std::function<bool()>& stop_requested) {
  children_ = children;
  if (!loader_) return {};
  std::vector<pid_t> pids;
  for (const pid_t target : targets_) {
    const CudaUse use = find_cuda_use(target, children);
    if (!use.any)
      return error(fmt::format("--gpu on: neither process {} nor a child of it uses CUDA or has "
                               "libdynprof_cupti.so",
                               target),
                   fmt::format("start the job with CUDA_INJECTION64_PATH={}, or record once it "
                               "uses CUDA",
                               gpu_library_path()));
    pids.insert(pids.end(), use.without_library.begin(), use.without_library.end());
  }
  for (const pid_t pid : pids) {
    if (followed(pid).asked || !loader_->wants(pid))
      continue;  // it can be the child of two targets
    while (!loader_->begin(pid)) note_loads(loader_->wait(stop_requested));
    followed(pid).asked = true;
  }
  note_loads(loader_->wait(stop_requested));
  return {};
}

void GpuCollector::note_loads(const std::vector<LibraryLoader::Outcome>& outcomes) {
  for (const auto& [pid, text, loaded] : outcomes) {
    note_(text);
    if (const auto at = processes_.find(pid); at != processes_.end() && !loaded)
      at->second.without_library = true;
  }
}

// With --gpu on: the library is being loaded, or will be once the process uses CUDA.
bool GpuCollector::awaits_library(pid_t pid, Followed& followed, const CudaMappings& cuda) {
  if (!loader_ || cuda.library || followed.without_library) return false;
  if (!cuda.driver) return true;
  if (!followed.asked && !loader_->wants(pid)) followed.without_library = true;
  if (!followed.asked && !followed.without_library) followed.asked = loader_->begin(pid);
  return !followed.without_library;
}

void GpuCollector::look(pid_t pid, std::uint64_t now_ns) {
  if (mode_ == GpuMode::kOff) return;
  if (loader_) note_loads(loader_->take());
  Followed& process = followed(pid);
  if (process.left_out || process.gpu.tier() == GpuTier::kLibrary || now_ns < process.next_look_ns)
    return;
  // It cannot have mapped CUDA yet, and most of what a compile starts has ended by the next look.
  const bool just_begun = all_looked_at_ && process.looks == 0;
  const std::uint64_t apart_ns = process.looks++ < kSoonLooks
                                     ? std::max(kSoonNs, processes_.size() * kSoonPerProcessNs)
                                     : std::max(kLaterNs, processes_.size() * kLaterPerProcessNs);
  process.next_look_ns = now_ns + apart_ns;
  if (just_begun) return;
  // Executable memory that is not the program's own (VmLib, read before the mappings): a library adds to it. To read that
  // is far cheaper than to read all mappings of a process that uses torch.
  auto field = read_status_field(pid, "VmLib");
  const std::string libraries = field ? *std::move(field) : "";
  const bool same = !libraries.empty() && libraries == process.without_cuda;
  if (same && process.looks % kLooksWhole != 0) return;
  const CudaMappings cuda = cuda_of(pid);
  process.without_cuda = cuda.best() == GpuTier::kNone ? libraries : "";
  if (cuda.best() <= process.gpu.tier()) return;
  if ((cuda.driver && is_copy_of_cuda_process(pid)) || read_purpose(pid) == Purpose::kWorker)
    process.left_out = true;
  else if (!awaits_library(pid, process, cuda))
    attach(pid, process, cuda);
}

void GpuCollector::forget(pid_t pid) {
  const auto at = processes_.find(pid);
  if (at == processes_.end()) return;
  if (const auto& status = at->second.gpu.status()) add_losses(*status);
  processes_.erase(at);
}

bool GpuCollector::traces(pid_t pid) const {
  const auto at = processes_.find(pid);
  return at != processes_.end() && at->second.gpu.tier() != GpuTier::kNone;
}

bool GpuCollector::has_library(pid_t pid) const {
  const auto at = processes_.find(pid);
  return at != processes_.end() && at->second.gpu.tier() == GpuTier::kLibrary;
}

void GpuCollector::attach(pid_t pid, Followed& followed, const CudaMappings& cuda) {
  const GpuTier tier = cuda.best();
  auto failed = [&](const Error& failure) {
    followed.left_out = true;
    note_(fmt::format("GPU work of process {} is not recorded: {}", pid, failure.what));
  };
  if (!kernel_) {
    auto loaded = GpuKernel::load(kernel_side_, launch_stacks_);
    if (!loaded) return failed(loaded.error());
    kernel_ = std::move(*loaded);
  }
  if (auto attached = followed.gpu.attach(cuda, launch_stacks_, *kernel_); !attached)
    return failed(attached.error());
  if (tier == GpuTier::kDriver)
    note_(
        fmt::format("process {} uses CUDA without libdynprof_cupti.so: its launches are recorded, "
                    "without times on the GPU{}{}",
                    pid,
                    launch_stacks_ == LaunchStackMode::kSampled
                        ? ", each with its stack: only the library can sample them"
                        : "",
                    mode_ == GpuMode::kAuto ? "; --gpu on loads the library" : ""));
  if (tier == GpuTier::kRuntime)
    note_(fmt::format("process {}: calls into libcudart are recorded until it has a driver", pid));
}

bool GpuCollector::probes_settled(pid_t pid) {
  if (mode_ == GpuMode::kOff) return true;
  if (loader_ && children_) return false;  // one may use CUDA at any time
  const auto at = processes_.find(pid);
  if (at != processes_.end() && at->second.left_out) return true;
  if (at != processes_.end() && at->second.gpu.tier() == GpuTier::kLibrary)
    return !children_ && has_answered(at->second.gpu.status());
  // A process that has no CUDA by the time torch is there will not get it: it is no CUDA build.
  return mode_ == GpuMode::kAuto && cuda_of(pid).best() == GpuTier::kNone;
}

// What the events of one process need; during one call.
struct GpuCollector::Receiver {
  void write(const dynprof_gpu_record& record) {
    GpuRecord row{process.pid(), record};
    row.record.name = gpu.name(record.name, writer);
    writer.gpu_record(row);
  }

  GpuCollector& collector;
  GpuProcess& gpu;
  LaunchRate& rate;
  FollowedProcess& process;
  SampleEncoder& encoder;
  RecordingWriter& writer;

  SamplePlace place_of(const SampleView& launch);
  void on(const SampleView& launch);
  void add_address(const SampleView& view, GpuLaunch& launch);
  void add_name(std::uint64_t handle, bool by_runtime, GpuLaunch& launch);
  void on(const dp_gpu_stub& stub) { gpu.calls().stub(stub.header.tid, stub.function, stub.sp); }
  void on(const GpuBatch& batch);
  void on(const GpuName& name) {
    if (name.id == DYNPROF_GPU_HOLDER)
      gpu.holder(name.text);
    else
      gpu.name(name.id, writer.string(name.text));
  }
  void on(const dynprof_gpu_status& status) {
    std::string line = gpu.on_status(status);
    line += gpu.stand_in(*collector.kernel_);
    if (!line.empty()) collector.note_(line);
  }
};

SamplePlace GpuCollector::Receiver::place_of(const SampleView& view) {
  const auto number = LaunchStacks::number_of(view);
  if (number && view.frames.empty()) {
    if (const SamplePlace* kept = collector.stacks_.find(*number)) return *kept;
    collector.stacks_missing_++;
    return {};
  }
  const SamplePlace place = encoder.place(view, process);
  if (number) collector.stacks_.keep(*number, place);
  return place;
}

void GpuCollector::Receiver::add_name(std::uint64_t handle, bool by_runtime, GpuLaunch& launch) {
  const std::string& name = gpu.calls().driver_name(handle, by_runtime, launch.time_ns);
  if (name.empty()) return;
  launch.flags |= kGpuCallNamed;
  const Frame frame{.kind = FrameKind::kNative, .symbol = writer.string(name)};
  launch.stack = writer.stack({launch.stack, writer.frame(frame)});
}

// The function that stands for the kernel, or, where none is known, the code that calls the driver; behind it the name
// that the driver has of the kernel.
void GpuCollector::Receiver::add_address(const SampleView& view, GpuLaunch& launch) {
  const bool sent = view.sample.flags & DP_SAMPLE_GPU_ADDRESS && !view.native.empty();
  std::uint64_t address = sent ? view.native[0] : 0;
  const bool has_handle =
      sent && view.sample.flags & DP_SAMPLE_GPU_HANDLE && view.native.size() > 1;
  std::uint8_t flag = kGpuCallStub;
  if (DYNPROF_GPU_CALL_DOMAIN(launch.call) == DYNPROF_GPU_DRIVER) {
    std::uint64_t function = 0;
    if (gpu_call_class(launch.call) == DYNPROF_GPU_CLASS_LAUNCH)
      function = gpu.calls().take_stub(view.sample.header.tid,
                                       static_cast<std::uint32_t>(view.sample.gpu_call));
    if (has_handle) add_name(view.native[1], function != 0, launch);
    if (function != 0)
      address = function;
    else
      flag = kGpuCallCaller;
  }
  if (address == 0) return;
  launch.flags |= flag;
  launch.stack = encoder.with_function(launch.stack, address, launch.time_ns, process);
}

void GpuCollector::Receiver::on(const SampleView& view) {
  const bool bare = view.sample.flags & DP_SAMPLE_GPU_BARE;
  // Of a bare call the stack pointer comes there.
  const auto correlation = bare ? 0 : static_cast<std::uint32_t>(view.sample.gpu_call);
  if (!gpu.launched(view.sample.header.time_ns, correlation)) return;
  const SamplePlace place = place_of(view);  // a later launch may refer to it
  if (gpu.sees_twice(bare)) return;
  if (!bare) rate.add(view.sample.header.time_ns);
  GpuLaunch launch;
  launch.time_ns = view.sample.header.time_ns;
  launch.thread =
      process.identity().threads().of(static_cast<pid_t>(view.sample.header.tid), writer);
  launch.correlation = correlation;
  launch.call = static_cast<std::uint32_t>(view.sample.gpu_call >> 32);
  launch.stack = place.stack;
  launch.context = place.context;
  if (view.sample.flags & DP_SAMPLE_GPU_NESTED) launch.flags |= kGpuCallNested;
  if (bare) {
    launch.flags |= kGpuCallBare;
    add_address(view, launch);
  }
  writer.gpu_launch(launch);
}

void GpuCollector::Receiver::on(const GpuBatch& batch) {
  for (const dynprof_gpu_record& record : batch) {
    if (!is_plausible(record)) {
      collector.implausible_++;
      continue;
    }
    if (gpu.after_end(record)) continue;
    if (const auto device = gpu.unseen_device(record)) write(*device);
    write(record);
  }
}

bool GpuCollector::on_event(const GpuEventView& view, FollowedProcess& process,
                            SampleEncoder& encoder, RecordingWriter& writer) {
  const auto event = decode_gpu_event(view);
  if (!event) return false;
  const auto at = processes_.find(static_cast<pid_t>(view.header.pid));
  if (at != processes_.end()) {
    Receiver to{*this, at->second.gpu, at->second.launch_rate, process, encoder, writer};
    std::visit([&to](const auto& one) { to.on(one); }, *event);
  }
  return true;
}

void GpuCollector::begin_detach() {
  if (loader_) note_loads(loader_->wait([] { return true; }));
  for (auto& [pid, followed] : processes_) followed.gpu.begin_detach();
}

bool GpuCollector::settled() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const auto& entry) { return entry.second.gpu.settled(); });
}

void GpuCollector::note_missing_library() {
  const bool any = std::any_of(processes_.begin(), processes_.end(), [](const auto& entry) {
    const Followed& followed = entry.second;
    return followed.asked || followed.without_library || followed.gpu.tier() == GpuTier::kLibrary;
  });
  if (mode_ == GpuMode::kOn && !any) note_("--gpu on: no process that was recorded used CUDA");
}

// Where the library could have left out most stacks.
void GpuCollector::note_launch_rate(pid_t pid, const Followed& followed) {
  const std::uint64_t rate = followed.launch_rate.per_second();
  if (followed.gpu.tier() != GpuTier::kLibrary || launch_stacks_ == LaunchStackMode::kSampled ||
      rate < kManyLaunches)
    return;
  note_(
      fmt::format("process {} made {} GPU calls a second, each recorded with its stack; "
                  "--sampled-launch-stacks costs it less",
                  pid, format_count(rate)));
}

void GpuCollector::finish_detach() {
  note_missing_library();
  for (auto& [pid, followed] : processes_) {
    if (!followed.gpu.settled())
      note_(fmt::format(
          "the library in process {} did not answer: the last of its GPU work may be missing",
          pid));
    if (const auto& status = followed.gpu.status()) add_losses(*status);
    note_launch_rate(pid, followed);
    followed.gpu.finish_detach();
  }
}

void GpuCollector::add_losses(const dynprof_gpu_status& status) {
  lost_in_target_ += status.dropped_ring + status.dropped_cupti;
  capped_ += status.dropped_rate + status.dropped_rate_records;
  implausible_ += status.implausible_times;
}

void GpuCollector::fill(Counters& counters) const {
  counters[DP_COUNT_GPU_TARGET_LOST] = lost_in_target_;
  counters[DP_COUNT_GPU_RATE_CAPPED] = capped_;
  counters[DP_COUNT_GPU_IMPLAUSIBLE] = implausible_;
  counters[DP_COUNT_GPU_STACK_MISSING] = stacks_missing_;
}

}  // namespace dynprof
