#include "user/gpu/gpu_process.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "user/gpu/cupti_holder.h"
#include "user/gpu/usdt_notes.h"
#include "user/target/clock.h"
#include "user/target/function_offsets.h"
#include "user/target/probe_offset.h"

namespace dynprof {
namespace {

constexpr std::string_view kLibraryName = "libdynprof_cupti.so";
constexpr std::size_t kMaxNames = 1 << 16;
constexpr std::uint64_t kSharedNs = 500'000'000;      // several flushes of the library
constexpr std::size_t kMaxStubs = 4096;               // threads
constexpr std::uint32_t kMaxRuntimeStack = 16 << 10;  // that libcudart uses above the driver's

struct Wanted {
  GpuProbe probe;
  std::string_view name;
  std::string_view arguments;  // where bpf/gpu.bpf.c looks for them
};
// In the order they are set; the last one is the switch.
constexpr std::array kWanted = {
    Wanted{GpuProbe::kStatus, "gpu_status", "4@%eax 4@%edx 8@%rdi 4@%ecx"},
    Wanted{GpuProbe::kName, "gpu_name", "4@%edi 8@%rsi 4@%edx"},
    Wanted{GpuProbe::kBatch, "gpu_batch", "8@%rdi 4@%esi"},
    Wanted{GpuProbe::kLaunch, "gpu_launch", "4@%edi 4@%esi 8@%rdx 4@%ecx"},
};

struct Function {
  const char* symbol;
  std::uint32_t cbid;     // as in cupti/calls_table.h
  std::uint8_t stub = 0;  // which argument is the function that stands for the kernel, 0: none
};
// What starts work on a GPU without waiting for it. Functions a version does not have are left out.
constexpr Function kDriver[] = {
    {"cuLaunchKernel", 307},
    {"cuLaunchKernel_ptsz", 442},
    {"cuLaunchKernelEx", 652},
    {"cuLaunchKernelEx_ptsz", 653},
    {"cuLaunchCooperativeKernel", 477},
    {"cuLaunchCooperativeKernel_ptsz", 478},
    {"cuGraphLaunch", 514},
    {"cuGraphLaunch_ptsz", 515},
    {"cuMemcpyAsync", 306},
    {"cuMemcpyAsync_ptsz", 418},
    {"cuMemcpyHtoDAsync_v2", 277},
    {"cuMemcpyHtoDAsync_v2_ptsz", 421},
    {"cuMemcpyDtoHAsync_v2", 279},
    {"cuMemcpyDtoHAsync_v2_ptsz", 422},
    {"cuMemcpyDtoDAsync_v2", 281},
    {"cuMemcpyDtoDAsync_v2_ptsz", 423},
    {"cuMemcpyPeerAsync", 319},
    {"cuMemcpyPeerAsync_ptsz", 426},
    {"cuMemsetD8Async", 216},
    {"cuMemsetD8Async_ptsz", 428},
    {"cuMemsetD16Async", 218},
    {"cuMemsetD16Async_ptsz", 429},
    {"cuMemsetD32Async", 220},
    {"cuMemsetD32Async_ptsz", 430},
};
// __cudaLaunchKernel of CUDA 13 jumps to cudaLaunchKernel: probing both would count twice.
constexpr Function kRuntime[] = {
    {"cudaLaunchKernel", 211, 1},
    {"cudaLaunchKernel_ptsz", 214, 1},
    {"cudaLaunchKernelExC", 430, 2},
    {"cudaLaunchKernelExC_ptsz", 431, 2},
    {"cudaLaunchCooperativeKernel", 269, 1},
    {"cudaLaunchCooperativeKernel_ptsz", 270, 1},
    {"cudaGraphLaunch", 311},
    {"cudaGraphLaunch_ptsz", 312},
    {"cudaMemcpyAsync", 41},
    {"cudaMemcpyAsync_ptsz", 225},
    {"cudaMemsetAsync", 51},
    {"cudaMemsetAsync_ptsz", 235},
};

// A library of CUDA's that the process maps, and where these functions lie in it.
struct CallPlaces {
  UniqueFd file;
  std::vector<std::optional<FunctionPlace>> found;
  bool calls_emulated = false;

  std::uint64_t probe_at(std::size_t function) const {
    return probe_offset(file.get(), found[function]->offset, ProbeReads::kArguments,
                        calls_emulated);
  }

  static Result<CallPlaces> find(pid_t pid, const Mapping& mapping,
                                 std::span<const Function> functions) {
    CallPlaces places;
    ASSIGN_OR_RETURN(places.file, open_mapped_file(pid, mapping));
    std::vector<std::string_view> names;
    for (const Function& function : functions) names.emplace_back(function.symbol);
    auto found = find_functions(places.file.get(), names);
    if (!found) return error(fmt::format("{} {}", mapping.path, found.error().what));
    places.found = *std::move(found);
    places.calls_emulated = !has_shadow_stack(pid);
    return places;
  }
};

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

GpuTier CudaMappings::best() const {
  return library   ? GpuTier::kLibrary
         : driver  ? GpuTier::kDriver
         : runtime ? GpuTier::kRuntime
                   : GpuTier::kNone;
}

CudaMappings find_cuda(const std::vector<Mapping>& mappings) {
  CudaMappings found;
  for (const Mapping& mapping : mappings) {
    if (!mapping.executable || !mapping.is_file()) continue;
    const std::string_view name =
        std::string_view(mapping.path).substr(mapping.path.rfind('/') + 1);
    if (name == kLibraryName) found.library = mapping;
    if (name.starts_with("libcuda.so")) found.driver = mapping;
    if (name.starts_with("libcudart.so")) found.runtime = mapping;
  }
  return found;
}

Result<void> GpuProcess::attach(const CudaMappings& cuda, GpuTier tier, GpuKernel& kernel) {
  if (!probes_.empty()) close_together(std::move(probes_));
  probes_.clear();
  tier_ = GpuTier::kNone;
  if (tier == GpuTier::kLibrary) {
    TRY(attach_library(*cuda.library, kernel));
  } else {
    const bool driver = tier == GpuTier::kDriver;
    TRY(attach_calls(driver ? *cuda.driver : *cuda.runtime, driver, kernel));
    if (driver && cuda.runtime) attach_stubs(*cuda.runtime, kernel);
  }
  tier_ = tier;
  return {};
}

Result<void> GpuProcess::attach_library(const Mapping& library, GpuKernel& kernel) {
  ASSIGN_OR_RETURN(UniqueFd file, open_mapped_file(pid_, library));
  ASSIGN_OR_RETURN(auto notes, read_usdt_notes(file.get()));
  const std::string path = path_of_open_file(file.get());
  for (const Wanted& wanted : kWanted) {
    const UsdtNote* found = nullptr;
    for (const UsdtNote& note : notes)
      if (note.provider == "dynprof" && note.name == wanted.name) found = &note;
    if (!found || found->semaphore == 0 || found->arguments != wanted.arguments)
      return error(
          fmt::format("the libdynprof_cupti.so in process {} is from a different build", pid_),
          "use the one installed with this dynprof-bpf, and restart the job");
    ASSIGN_OR_RETURN(Uprobe probe,
                     kernel.attach(wanted.probe, {.pid = pid_,
                                                  .path = path,
                                                  .offset = place_of(*found, file.get()),
                                                  .semaphore = found->semaphore}));
    (wanted.probe == GpuProbe::kLaunch ? launch_ : probes_.emplace_back()) = std::move(probe);
    if (wanted.probe == GpuProbe::kLaunch) switch_ = address_in(pid_, library, found->semaphore);
  }
  for (const UsdtNote& note : notes)
    if (note.provider == "dynprof" && note.name == "gpu_tables")
      if (const auto address = address_in(pid_, library, note.semaphore))
        tables_.emplace(pid_, *address);
  return {};
}

Result<void> GpuProcess::attach_calls(const Mapping& mapping, bool driver, GpuKernel& kernel) {
  const auto domain = driver ? DYNPROF_GPU_DRIVER : DYNPROF_GPU_RUNTIME;
  const std::span<const Function> functions =
      driver ? std::span<const Function>(kDriver) : std::span<const Function>(kRuntime);
  ASSIGN_OR_RETURN(const CallPlaces places, CallPlaces::find(pid_, mapping, functions));
  const std::string path = path_of_open_file(places.file.get());
  Result<void> first;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (!places.found[i]) continue;
    const std::uint64_t cookie =
        DYNPROF_GPU_CALL(domain, functions[i].cbid) | DP_GPU_COOKIE_ARGUMENT(functions[i].stub);
    auto probe = kernel.attach_call(
        {.pid = pid_, .path = path, .offset = places.probe_at(i), .cookie = cookie}, false);
    if (probe) {
      probes_.push_back(std::move(*probe));
    } else if (first) {
      Error failure = std::move(probe).error();
      failure.what += fmt::format(" ({})", functions[i].symbol);
      first = std::move(failure);
    }
  }
  if (!probes_.empty()) return {};
  if (!first) return first;
  return error(fmt::format("{} in process {} has none of the functions that start GPU work",
                           mapping.path, pid_));
}

// Where a probe cannot be set launches stay without a name.
void GpuProcess::attach_stubs(const Mapping& runtime, GpuKernel& kernel) {
  const auto places = CallPlaces::find(pid_, runtime, kRuntime);
  if (!places) return;
  const std::string path = path_of_open_file(places->file.get());
  for (std::size_t i = 0; i < std::size(kRuntime); ++i) {
    if (kRuntime[i].stub == 0 || !places->found[i]) continue;
    const std::uint64_t cookie = DP_GPU_COOKIE_ARGUMENT(kRuntime[i].stub);
    if (auto probe = kernel.attach_call(
            {.pid = pid_, .path = path, .offset = places->probe_at(i), .cookie = cookie}, true))
      probes_.push_back(std::move(*probe));
  }
}

void GpuProcess::stub(std::uint32_t tid, std::uint64_t function, std::uint64_t sp) {
  if (stubs_.size() >= kMaxStubs) stubs_.clear();
  stubs_[tid] = {function, sp};
}

// A launch that failed inside the runtime leaves its stub behind. The next call into the driver does not belong
// to it: that is made from another place on the stack.
std::uint64_t GpuProcess::take_stub(std::uint32_t tid, std::uint32_t sp) {
  const auto at = stubs_.find(tid);
  if (at == stubs_.end()) return 0;
  const Stub found = at->second;
  stubs_.erase(at);
  return static_cast<std::uint32_t>(found.sp) - sp <= kMaxRuntimeStack ? found.function : 0;
}

void GpuProcess::begin_detach() {
  detaching_ = true;
  detach_begin_ns_ = monotonic_ns();
  off_ = tier_ != GpuTier::kLibrary;
  launch_.reset();
}

bool GpuProcess::settled() const {
  // Only a library that is on, or is just becoming so, says when it is off.
  const bool answers =
      status_ && (status_->code == DYNPROF_GPU_ON || status_->code == DYNPROF_GPU_STARTING);
  return off_ || !answers || is_gone(pid_) || is_shared();
}

// The library stays on for another recording. It has sent what it had by now.
bool GpuProcess::is_shared() const {
  if (!detaching_ || !switch_ || monotonic_ns() - detach_begin_ns_ < kSharedNs) return false;
  return ProcessMemory(pid_).read<std::uint16_t>(*switch_).value_or(0) > 0;
}

void GpuProcess::finish_detach() {
  close_together(std::move(probes_));
  probes_.clear();
  tier_ = GpuTier::kNone;
}

std::string GpuProcess::on_status(const dynprof_gpu_status& status) {
  status_ = status;
  if (detaching_ && status.code == DYNPROF_GPU_OFF) off_ = true;
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
