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
  LoadedGpuKernel(Skeleton<gpu_bpf> skeleton, const Uprobes& uprobes)
      : skeleton_(std::move(skeleton)), uprobes_(uprobes) {}

  Result<Uprobe> attach(GpuProbe probe, const UprobePlace& place) override {
    return uprobes_.attach(program_of(probe), place, "cannot probe libdynprof_cupti.so");
  }

  Result<Uprobe> attach_call(const UprobePlace& place, bool stub) override {
    auto& programs = skeleton_->progs;
    return uprobes_.attach(stub ? programs.gpu_stub_called : programs.gpu_called, place,
                           "cannot probe a function of CUDA");
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
  const Uprobes& uprobes_;
};

}  // namespace

Result<std::unique_ptr<GpuKernel>> GpuKernel::load(KernelSide& kernel, LaunchStackMode stacks) {
  constexpr const char* kPrograms = "GPU";
  const Uprobes* uprobes = kernel.uprobes();
  if (!uprobes) return error("probes are not wanted");
  ASSIGN_OR_RETURN(auto skeleton, open_object<gpu_bpf>(kPrograms));
  uprobes->prepare(skeleton->obj);
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
  skeleton->rodata->all_launch_stacks = stacks == LaunchStackMode::kEachRead;
  TRY(load_object(kPrograms, *skeleton));
  TRY(kernel.add_ring(bpf_map__fd(maps.gpu_events)));
  return std::unique_ptr<GpuKernel>(
      std::make_unique<LoadedGpuKernel>(std::move(skeleton), *uprobes));
}

}  // namespace dynprof
