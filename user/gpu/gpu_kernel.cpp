#include "user/gpu/gpu_kernel.h"

#include <bpf/libbpf.h>
#include "gpu.skel.h"
#include "user/kernel/bpf_object.h"
#include "user/kernel/pid_namespace.h"

namespace dynprof {
namespace {

// A job launches up to 200,000 kernels a second: 128 bytes for each and for its call, and a stack of
// 1 KB for each launch. The consumer comes every 20 ms at least.
constexpr std::uint32_t kRingBytes = 32 << 20;

class LoadedGpuKernel final : public GpuKernel {
 public:
  LoadedGpuKernel(Skeleton<gpu_bpf> skeleton, ClosingProcess* closing)
      : skeleton_(std::move(skeleton)), deleter_{closing} {}

  Result<Link> attach(GpuProbe probe, pid_t pid, const std::string& path, std::uint64_t location,
                      std::uint64_t semaphore) override {
    LIBBPF_OPTS(bpf_uprobe_opts, options, .ref_ctr_offset = semaphore);
    Link link(
        bpf_program__attach_uprobe_opts(program_of(probe), pid, path.c_str(), location, &options),
        deleter_);
    if (!link) return bpf_error("cannot probe libdynprof_cupti.so", errno);
    return link;
  }

  Result<Link> attach_call(pid_t pid, const std::string& path, std::uint64_t location,
                           std::uint64_t cookie, bool stub) override {
    LIBBPF_OPTS(bpf_uprobe_opts, options, .bpf_cookie = cookie);
    auto& programs = skeleton_->progs;
    Link link(bpf_program__attach_uprobe_opts(stub ? programs.gpu_stub_called : programs.gpu_called,
                                              pid, path.c_str(), location, &options),
              deleter_);
    if (!link) return bpf_error("cannot probe a function of CUDA", errno);
    return link;
  }

 private:
  bpf_program* program_of(GpuProbe probe) {
    switch (probe) {
      case GpuProbe::kBatch:
        return skeleton_->progs.gpu_batched;
      case GpuProbe::kName:
        return skeleton_->progs.gpu_named;
      case GpuProbe::kStatus:
        return skeleton_->progs.gpu_status_changed;
      case GpuProbe::kLaunch:
        break;
    }
    return skeleton_->progs.gpu_launched;
  }

  Skeleton<gpu_bpf> skeleton_;
  LinkDeleter deleter_;
};

}  // namespace

Result<std::unique_ptr<GpuKernel>> GpuKernel::load(KernelSide& kernel) {
  constexpr const char* kPrograms = "GPU";
  ASSIGN_OR_RETURN(auto skeleton, open_object<gpu_bpf>(kPrograms));
  auto& maps = skeleton->maps;
  // Not code_caches: its entries would be of another generation of markers.
  TRY(share_maps({maps.processes, maps.events, maps.counters, maps.torch_threads, maps.known_codes,
                  maps.phase_edges},
                 [&kernel](const char* name) { return kernel.map_fd(name); }));
  bpf_map__set_max_entries(maps.gpu_events, kRingBytes);
  size_by_cpus({maps.code_caches});
  ASSIGN_OR_RETURN(const PidNamespace ours, find_pid_namespace());
  set_pid_namespace(skeleton->rodata, ours);
  skeleton->rodata->gpu_wakeup_bytes = kRingBytes / 8;
  TRY(load_object(kPrograms, *skeleton));
  TRY(kernel.add_ring(bpf_map__fd(maps.gpu_events)));
  return std::unique_ptr<GpuKernel>(
      std::make_unique<LoadedGpuKernel>(std::move(skeleton), kernel.closing()));
}

}  // namespace dynprof
