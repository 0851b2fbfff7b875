#include "user/gpu/cuda_mappings.h"

#include <string_view>

namespace dynprof {
namespace {

constexpr std::string_view kLibraryName = "libdynprof_cupti.so";

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

}  // namespace dynprof
