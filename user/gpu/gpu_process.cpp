#include "user/gpu/gpu_process.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "user/gpu/cupti_holder.h"
#include "user/gpu/usdt_notes.h"
#include "user/target/clock.h"
#include "user/target/function_offsets.h"
#include "user/target/process.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxNames = 1 << 16;
constexpr std::uint64_t kSharedNs = 500'000'000;  // several flushes of the library

struct Wanted {
  GpuProbe probe;
  std::string_view name;
  std::string_view arguments;  // where bpf/gpu.bpf.c looks for them
};
constexpr std::string_view kLaunchArguments = "4@%edi 4@%esi 8@%rdx 4@%ecx";
// Either is the switch.
constexpr Wanted kEachLaunch{GpuProbe::kLaunch, "gpu_launch", kLaunchArguments};
constexpr Wanted kSampledLaunch{GpuProbe::kLaunch, "gpu_launch_sampled", kLaunchArguments};
// In the order they are set, before the switch.
constexpr std::array kWanted = {
    Wanted{GpuProbe::kStatus, "gpu_status", "4@%eax 4@%edx 8@%rdi 4@%ecx"},
    Wanted{GpuProbe::kName, "gpu_name", "4@%edi 8@%rsi 4@%edx"},
    Wanted{GpuProbe::kBatch, "gpu_batch", "8@%rdi 4@%esi"},
};

const UsdtNote* find_note(const std::vector<UsdtNote>& notes, std::string_view name) {
  const auto found = std::find_if(notes.begin(), notes.end(), [&](const UsdtNote& note) {
    return note.provider == "dynprof" && note.name == name;
  });
  return found == notes.end() ? nullptr : &*found;
}

// Linux 6.18 and later make a call of a probe on a five-byte nop: its system call says where it does not
// belong, older kernels do not know it. x86-64 alone; anything else keeps the breakpoint.
bool kernel_calls_probes() {
#ifdef __x86_64__
  constexpr long kUprobeCall = 336;
  static const bool does = syscall(kUprobeCall) < 0 && (errno == ENXIO || errno == EPROTO);
  return does;
#else
  return false;
#endif
}

// Where in the file to set the probe: at its nop, or at the five-byte one that may follow.
std::uint64_t place_of(const UsdtNote& note, int file) {
  constexpr std::array<std::uint8_t, 5> kWide = {0x0f, 0x1f, 0x44, 0x00, 0x00};
  std::array<std::uint8_t, 5> next;
  const auto got = pread(file, next.data(), next.size(), static_cast<off_t>(note.location + 1));
  const bool wide = got == static_cast<ssize_t>(next.size()) && next == kWide;
  return note.location + (wide && kernel_calls_probes() ? 1 : 0);
}

// Where data of a library lies in the process, by its offset in the file.
std::optional<std::uint64_t> address_in(pid_t pid, const Mapping& library, std::uint64_t offset) {
  const auto mappings = read_mappings(pid);
  if (!mappings) return std::nullopt;
  for (const Mapping& mapping : *mappings)
    if (mapping.same_file(library) && mapping.writable && mapping.offset <= offset &&
        offset - mapping.offset < mapping.end - mapping.start)
      return mapping.start + (offset - mapping.offset);
  return std::nullopt;
}

bool is_gone(pid_t pid) {
  auto stat = read_process_stat(pid);
  return !stat || stat->zombie();
}

}  // namespace

Result<void> GpuProcess::attach(const CudaMappings& cuda, LaunchStackMode stacks,
                                GpuKernel& kernel) {
  calls_.remove();
  tier_ = GpuTier::kNone;
  if (cuda.library)
    TRY(attach_library(*cuda.library, stacks, kernel));
  else
    TRY(calls_.attach(cuda, kernel));
  tier_ = cuda.best();
  return {};
}

// CUPTI is somebody else's, or not there. The library tries again, so this may be for a while.
std::string GpuProcess::stand_in(GpuKernel& kernel) {
  if (detaching_ || !refused() || std::exchange(stood_in_, true)) return {};
  const auto mappings = read_mappings(pid_);
  const CudaMappings cuda = mappings ? find_cuda(*mappings) : CudaMappings();
  if (!cuda.driver) return {};
  if (auto attached = calls_.attach(cuda, kernel); !attached)
    return fmt::format("; its launches are not recorded either: {}", attached.error().what);
  return "; meanwhile its launches are recorded by probes, without times on the GPU";
}

bool GpuProcess::refused() const {
  return status_ &&
         (status_->code == DYNPROF_GPU_NO_CUPTI || status_->code == DYNPROF_GPU_TOO_OLD ||
          status_->code == DYNPROF_GPU_BUSY || status_->code == DYNPROF_GPU_FAILED);
}

bool GpuProcess::sees_twice(bool by_probe) {
  if (tier_ != GpuTier::kLibrary) return false;
  library_calls_ |= !by_probe;
  return by_probe && library_calls_;
}

Result<void> GpuProcess::attach_library(const Mapping& library, LaunchStackMode stacks,
                                        GpuKernel& kernel) {
  ASSIGN_OR_RETURN(UniqueFd file, open_mapped_file(pid_, library));
  ASSIGN_OR_RETURN(auto notes, read_usdt_notes(file.get()));
  const std::string path = path_of_open_file(file.get());
  const auto set = [&](const Wanted& wanted) -> Result<Uprobe> {
    const UsdtNote* found = find_note(notes, wanted.name);
    if (!found || found->semaphore == 0 || found->arguments != wanted.arguments)
      return error(
          fmt::format("the libdynprof_cupti.so in process {} is from a different build", pid_),
          "use the one installed with this dynprof-bpf, and restart the job");
    return kernel.attach(wanted.probe, {.pid = pid_,
                                        .path = path,
                                        .offset = place_of(*found, file.get()),
                                        .semaphore = found->semaphore});
  };
  for (const Wanted& wanted : kWanted) {
    ASSIGN_OR_RETURN(Uprobe probe, set(wanted));
    probes_.push_back(std::move(probe));
  }
  ASSIGN_OR_RETURN(launch_,
                   set(stacks == LaunchStackMode::kSampled ? kSampledLaunch : kEachLaunch));
  const auto address_of = [&](std::string_view name) -> std::optional<std::uint64_t> {
    const UsdtNote* note = find_note(notes, name);
    return note ? address_in(pid_, library, note->semaphore) : std::nullopt;
  };
  for (const Wanted& one : {kEachLaunch, kSampledLaunch})
    if (const auto address = address_of(one.name)) switches_.push_back(*address);
  if (const auto address = address_of("gpu_tables")) tables_.emplace(pid_, *address);
  return {};
}

void GpuProcess::begin_detach() {
  detaching_ = true;
  detach_begin_ns_ = monotonic_ns();
  off_ = tier_ != GpuTier::kLibrary;
  launch_.reset();
}

bool GpuProcess::launched(std::uint64_t time_ns, std::uint32_t correlation) {
  if (detaching_ && time_ns >= detach_begin_ns_) return false;
  last_launch_ = std::max(last_launch_, correlation);
  return true;
}

bool GpuProcess::after_end(const dynprof_gpu_record& record) {
  // Not each call is announced where stacks are sampled.
  if (record.kind == DYNPROF_GPU_CALL_RECORD && launched(record.start_ns, record.correlation))
    return false;
  if (!detaching_ || record.start_ns < detach_begin_ns_) return false;
  if (record.kind == DYNPROF_GPU_CALL_RECORD) return true;
  return record.kind != DYNPROF_GPU_DEVICE && record.correlation > last_launch_;
}

bool GpuProcess::settled() const {
  // Only a library that is on, or is just becoming so, says when it is off.
  const bool answers =
      status_ && (status_->code == DYNPROF_GPU_ON || status_->code == DYNPROF_GPU_STARTING);
  return off_ || !answers || is_gone(pid_) || is_shared();
}

// The library stays on for another recording. It has sent what it had by now.
bool GpuProcess::is_shared() const {
  if (!detaching_ || monotonic_ns() - detach_begin_ns_ < kSharedNs) return false;
  ProcessMemory memory(pid_);
  return std::any_of(switches_.begin(), switches_.end(), [&](std::uint64_t address) {
    return memory.read<std::uint16_t>(address).value_or(0) > 0;
  });
}

void GpuProcess::finish_detach() {
  calls_.remove();
  close_together(std::move(probes_));
  probes_.clear();
  tier_ = GpuTier::kNone;
}

std::string GpuProcess::on_status(const dynprof_gpu_status& status) {
  status_ = status;
  if (detaching_ && status.code == DYNPROF_GPU_OFF) off_ = true;
  library_calls_ = status.code == DYNPROF_GPU_ON;
  if (library_calls_) {
    calls_.remove();
    stood_in_ = false;
  }
  if (std::exchange(told_, status.code) == status.code) return {};
  const std::string who = fmt::format("GPU work of process {}", pid_);
  switch (status.code) {
    case DYNPROF_GPU_ON:
      return fmt::format("{} is traced (CUPTI {})", who, status.cupti_version);
    case DYNPROF_GPU_NO_CUPTI:
      return fmt::format("{} is not traced: it maps no libcupti; name one in DYNPROF_GPU_CUPTI",
                         who);
    case DYNPROF_GPU_TOO_OLD:
      return fmt::format("{} is not traced: its libcupti is older than CUDA 12.0", who);
    case DYNPROF_GPU_BUSY:
      return fmt::format("{} is not traced yet: another CUPTI client is active ({}): {}", who,
                         status.detail, cupti_holder(pid_, holder_));
    case DYNPROF_GPU_FAILED:
      return fmt::format("{} is not traced yet: CUPTI refused with error {}", who, status.detail);
    default:
      return {};
  }
}

void GpuProcess::name(std::uint32_t id, StringId text) {
  if (names_.size() < kMaxNames || names_.contains(id)) names_[id] = text;
}

StringId GpuProcess::name(std::uint32_t id, RecordingWriter& writer) {
  if (id == 0) return 0;
  if (const auto at = names_.find(id); at != names_.end()) return at->second;
  const auto text = tables_ ? tables_->name(id) : std::nullopt;
  if (!text) return 0;
  name(id, writer.string(*text));
  return writer.string(*text);
}

std::optional<dynprof_gpu_record> GpuProcess::unseen_device(const dynprof_gpu_record& record) {
  if (record.device >= DYNPROF_GPU_MAX_DEVICES) return std::nullopt;
  const std::uint64_t bit = std::uint64_t{1} << record.device;
  const bool seen = (devices_ & bit) != 0;
  devices_ |= bit;
  if (seen || record.kind == DYNPROF_GPU_DEVICE || !tables_) return std::nullopt;
  return tables_->device(record.device);
}

}  // namespace dynprof
