#include "user/gpu/call_probes.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "bpf/gpu_events.h"
#include "cupti/wire.h"
#include "user/target/function_offsets.h"
#include "user/target/probe_offset.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxStubs = 4096;               // threads
constexpr unsigned kEnoughNamed = 2000;               // in a row
constexpr std::uint32_t kMaxRuntimeStack = 16 << 10;  // that libcudart uses above the driver's

struct Function {
  const char* symbol;
  std::uint32_t cbid;         // as in cupti/calls_table.h
  std::uint64_t address = 0;  // the part of the cookie that says which address is wanted
};
constexpr std::uint64_t kCaller = DP_GPU_COOKIE_CALLER;
constexpr std::uint64_t kCallerOfEx = DP_GPU_COOKIE_CALLER | DP_GPU_COOKIE_SECOND;
constexpr std::uint64_t kFirst = DP_GPU_COOKIE_ARGUMENT(1), kSecond = DP_GPU_COOKIE_ARGUMENT(2);

// What starts work on a GPU without waiting for it. Functions a version does not have are left out.
constexpr Function kDriver[] = {
    {"cuLaunchKernel", 307, kCaller},
    {"cuLaunchKernel_ptsz", 442, kCaller},
    {"cuLaunchKernelEx", 652, kCallerOfEx},
    {"cuLaunchKernelEx_ptsz", 653, kCallerOfEx},
    {"cuLaunchCooperativeKernel", 477, kCaller},
    {"cuLaunchCooperativeKernel_ptsz", 478, kCaller},
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
    {"cudaLaunchKernel", 211, kFirst},
    {"cudaLaunchKernel_ptsz", 214, kFirst},
    {"cudaLaunchKernelExC", 430, kSecond},
    {"cudaLaunchKernelExC_ptsz", 431, kSecond},
    {"cudaLaunchCooperativeKernel", 269, kFirst},
    {"cudaLaunchCooperativeKernel_ptsz", 270, kFirst},
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

}  // namespace

Result<void> CallProbes::attach(const CudaMappings& cuda, GpuKernel& kernel) {
  const bool driver = cuda.driver.has_value();
  TRY(attach_calls(driver ? *cuda.driver : *cuda.runtime, driver, kernel));
  named_ = 0;
  if (driver && cuda.runtime) attach_stubs(*cuda.runtime, kernel);
  return {};
}

void CallProbes::remove() {
  close_together(std::exchange(probes_, {}));
  close_together(std::exchange(stub_probes_, {}));
}

const std::string& CallProbes::driver_name(std::uint64_t handle, bool by_runtime,
                                           std::uint64_t now_ns) {
  const std::string& name = names_.of(handle, now_ns);
  if (name.empty())
    named_ = 0;
  else if (by_runtime && ++named_ >= kEnoughNamed)
    close_together(std::exchange(stub_probes_, {}));
  return name;
}

Result<void> CallProbes::attach_calls(const Mapping& mapping, bool driver, GpuKernel& kernel) {
  const auto domain = driver ? DYNPROF_GPU_DRIVER : DYNPROF_GPU_RUNTIME;
  const std::span<const Function> functions =
      driver ? std::span<const Function>(kDriver) : std::span<const Function>(kRuntime);
  ASSIGN_OR_RETURN(const CallPlaces places, CallPlaces::find(pid_, mapping, functions));
  const std::string path = path_of_open_file(places.file.get());
  Result<void> first;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (!places.found[i]) continue;
    const std::uint64_t cookie = DYNPROF_GPU_CALL(domain, functions[i].cbid) | functions[i].address;
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
void CallProbes::attach_stubs(const Mapping& runtime, GpuKernel& kernel) {
  const auto places = CallPlaces::find(pid_, runtime, kRuntime);
  if (!places) return;
  const std::string path = path_of_open_file(places->file.get());
  for (std::size_t i = 0; i < std::size(kRuntime); ++i) {
    if (kRuntime[i].address == 0 || !places->found[i]) continue;
    if (auto probe = kernel.attach_call({.pid = pid_,
                                         .path = path,
                                         .offset = places->probe_at(i),
                                         .cookie = kRuntime[i].address},
                                        true))
      stub_probes_.push_back(std::move(*probe));
  }
}

void CallProbes::stub(std::uint32_t tid, std::uint64_t function, std::uint64_t sp) {
  if (stubs_.size() >= kMaxStubs) stubs_.clear();
  stubs_[tid] = {function, sp};
}

// A launch that failed inside the runtime leaves its stub behind. The next call into the driver does not belong
// to it: that is made from another place on the stack.
std::uint64_t CallProbes::take_stub(std::uint32_t tid, std::uint32_t sp) {
  const auto at = stubs_.find(tid);
  if (at == stubs_.end()) return 0;
  const Stub found = at->second;
  stubs_.erase(at);
  return static_cast<std::uint32_t>(found.sp) - sp <= kMaxRuntimeStack ? found.function : 0;
}

}  // namespace dynprof
