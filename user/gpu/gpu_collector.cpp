#include "user/gpu/gpu_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>

#include "symbolizer/attribution/gpu_work.h"
#include "user/gpu/gpu_view.h"
#include "user/gpu/library_path.h"
#include "user/inject/load_library.h"
#include "user/kernel/event_view.h"

namespace dynprof {
namespace {

// CUDA is mapped when torch is imported, the driver and the library when CUDA is first used.
constexpr std::uint64_t kSoonNs = 100'000'000;
constexpr std::uint64_t kLaterNs = 1'000'000'000;
constexpr unsigned kSoonLooks = 50;

// In a process that was forked the library is mapped, but its thread is not there.
bool library_runs(pid_t pid) {
  auto threads = list_threads(pid);
  return threads && std::any_of(threads->begin(), threads->end(),
                                [&](pid_t tid) { return read_comm(pid, tid) == "dynprof-gpu"; });
}

CudaMappings cuda_of(pid_t pid) {
  auto mappings = read_mappings(pid);
  if (!mappings) return {};
  CudaMappings cuda = find_cuda(*mappings);
  if (cuda.library && !library_runs(pid)) cuda = {};
  return cuda;
}

std::string loaded_note(pid_t pid, const Loaded& loaded) {
  std::string text =
      fmt::format("libdynprof_cupti.so was loaded into process {} {}", pid, loaded.how);
  if (loaded.stopped_ns != 0)
    text += fmt::format("; its main thread was stopped for {:.2f} ms",
                        static_cast<double>(loaded.stopped_ns) / 1e6);
  return text;
}

}  // namespace

Result<void> GpuCollector::load_libraries(const std::vector<pid_t>& targets,
                                          const std::function<bool()>& stop_requested) {
  if (mode_ != GpuMode::kOn) return {};
  for (pid_t pid : targets) {
    const CudaMappings cuda = cuda_of(pid);
    if (cuda.library) continue;
    if (cuda.best() == GpuTier::kNone)
      return error(
          fmt::format("--gpu on: process {} uses neither CUDA nor libdynprof_cupti.so", pid),
          fmt::format("start the job with CUDA_INJECTION64_PATH={}, or record once it "
                      "uses CUDA",
                      gpu_library_path()));
    const auto loaded =
        load_into_python(pid, gpu_library_path(), {.stop_requested = stop_requested});
    if (loaded) {
      note_(loaded_note(pid, *loaded));
      continue;
    }
    processes_.try_emplace(pid, pid).first->second.without_library = true;
    note_(fmt::format("libdynprof_cupti.so was not loaded into process {}: {}", pid,
                      loaded.error().what));
  }
  return {};
}

void GpuCollector::look(pid_t pid, std::uint64_t now_ns) {
  if (mode_ == GpuMode::kOff) return;
  Followed& followed = processes_.try_emplace(pid, pid).first->second;
  if (followed.failed || followed.gpu.tier() == GpuTier::kLibrary || now_ns < followed.next_look_ns)
    return;
  followed.next_look_ns = now_ns + (followed.looks++ < kSoonLooks ? kSoonNs : kLaterNs);
  const CudaMappings cuda = cuda_of(pid);
  if (cuda.best() > followed.gpu.tier()) attach(pid, followed, cuda);
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

void GpuCollector::attach(pid_t pid, Followed& followed, const CudaMappings& cuda) {
  const GpuTier tier = cuda.best();
  if (mode_ == GpuMode::kOn && tier != GpuTier::kLibrary && !followed.without_library) return;
  auto failed = [&](const Error& failure) {
    followed.failed = true;
    note_(fmt::format("GPU work of process {} is not recorded: {}", pid, failure.what));
  };
  if (!kernel_) {
    auto loaded = GpuKernel::load(kernel_side_);
    if (!loaded) return failed(loaded.error());
    kernel_ = std::move(*loaded);
  }
  if (auto attached = followed.gpu.attach(cuda, tier, *kernel_); !attached)
    return failed(attached.error());
  if (tier == GpuTier::kDriver)
    note_(
        fmt::format("process {} uses CUDA without libdynprof_cupti.so: its launches are recorded, "
                    "without times on the GPU{}",
                    pid, mode_ == GpuMode::kAuto ? "; --gpu on loads the library" : ""));
  if (tier == GpuTier::kRuntime)
    note_(fmt::format("process {}: calls into libcudart are recorded until it has a driver", pid));
}

bool GpuCollector::probes_settled(pid_t pid) {
  if (mode_ == GpuMode::kOff) return true;
  const auto at = processes_.find(pid);
  if (at != processes_.end() && (at->second.failed || at->second.gpu.tier() == GpuTier::kLibrary))
    return true;
  // A process that has no CUDA by the time torch is there will not get it: it is no CUDA build.
  return mode_ == GpuMode::kAuto && cuda_of(pid).best() == GpuTier::kNone;
}

// What the events of one process need; during one call.
struct GpuCollector::Receiver {
  GpuCollector& collector;
  GpuProcess& gpu;
  FollowedProcess& process;
  SampleEncoder& encoder;
  RecordingWriter& writer;

  void on(const SampleView& launch);
  void on(const dp_gpu_stub& stub) { gpu.stub(stub.header.tid, stub.function, stub.sp); }
  void on(const GpuBatch& batch);
  void on(const GpuName& name) { gpu.name(name.id, writer.string(name.text)); }
  void on(const dynprof_gpu_status& status) {
    if (std::string line = gpu.on_status(status); !line.empty()) collector.note_(line);
  }
};

void GpuCollector::Receiver::on(const SampleView& view) {
  const SamplePlace place = encoder.place(view, process);
  GpuLaunch launch;
  launch.time_ns = view.sample.header.time_ns;
  launch.thread =
      process.identity().threads().of(static_cast<pid_t>(view.sample.header.tid), writer);
  launch.correlation = static_cast<std::uint32_t>(view.sample.gpu_call);
  launch.call = static_cast<std::uint32_t>(view.sample.gpu_call >> 32);
  launch.stack = place.stack;
  launch.context = place.context;
  if (view.sample.flags & DP_SAMPLE_GPU_NESTED) launch.flags |= kGpuCallNested;
  if (view.sample.flags & DP_SAMPLE_GPU_BARE) {
    launch.flags |= kGpuCallBare;
    launch.correlation = 0;  // the stack pointer came there
    std::uint64_t function = 0;
    if (gpu_call_class(launch.call) == DYNPROF_GPU_CLASS_LAUNCH)
      function =
          gpu.take_stub(view.sample.header.tid, static_cast<std::uint32_t>(view.sample.gpu_call));
    if (!view.native.empty()) function = view.native[0];
    if (function != 0) {
      launch.flags |= kGpuCallStub;
      launch.stack = encoder.with_function(launch.stack, function, launch.time_ns, process);
    }
  }
  writer.gpu_launch(launch);
}

void GpuCollector::Receiver::on(const GpuBatch& batch) {
  for (const dynprof_gpu_record& record : batch) {
    if (!is_plausible(record)) {
      collector.implausible_++;
      continue;
    }
    GpuRecord row{process.pid(), record};
    row.record.name = gpu.name(record.name);
    writer.gpu_record(row);
  }
}

bool GpuCollector::on_event(const GpuEventView& view, FollowedProcess& process,
                            SampleEncoder& encoder, RecordingWriter& writer) {
  const auto event = decode_gpu_event(view);
  if (!event) return false;
  const auto at = processes_.find(static_cast<pid_t>(view.header.pid));
  if (at != processes_.end()) {
    Receiver to{*this, at->second.gpu, process, encoder, writer};
    std::visit([&to](const auto& one) { to.on(one); }, *event);
  }
  return true;
}

void GpuCollector::begin_detach() {
  for (auto& [pid, followed] : processes_) followed.gpu.begin_detach();
}

bool GpuCollector::settled() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const auto& entry) { return entry.second.gpu.settled(); });
}

void GpuCollector::finish_detach() {
  for (auto& [pid, followed] : processes_) {
    if (!followed.gpu.settled())
      note_(fmt::format(
          "the library in process {} did not answer: the last of its GPU work may be missing",
          pid));
    if (mode_ == GpuMode::kOn && followed.gpu.tier() != GpuTier::kLibrary && !followed.failed &&
        !followed.without_library)
      note_(fmt::format("--gpu on: process {} never loaded libdynprof_cupti.so", pid));
    if (const auto& status = followed.gpu.status()) add_losses(*status);
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
}

}  // namespace dynprof
