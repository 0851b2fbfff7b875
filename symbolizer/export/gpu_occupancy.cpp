#include "symbolizer/export/gpu_occupancy.h"

#include <algorithm>
#include <cmath>

namespace dynprof {
namespace {

// Compute capability 7.0 to 9.0, CUDA programming guide.
constexpr std::uint64_t kMaxBlocks = 32;         // a processor
constexpr std::uint64_t kRegisterUnit = 256;     // allocated per warp in these
constexpr std::uint64_t kReservedShared = 1024;  // per block, from 8.0 on

std::uint64_t up_to(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

double product(const std::int32_t (&sizes)[3]) {
  double all = 1;
  for (std::int32_t size : sizes) all *= std::max(size, 0);
  return all;
}

}  // namespace

GpuOccupancy gpu_occupancy(const dynprof_gpu_kernel& kernel, const dynprof_gpu_device* device) {
  GpuOccupancy result;
  if (!device || device->processors == 0 || device->warp_size == 0) return result;
  const double threads = product(kernel.block);
  const double blocks = product(kernel.grid);
  if (threads < 1 || threads > 1e6) return result;
  const double warps = std::ceil(threads / device->warp_size);
  result.blocks_per_processor = blocks / device->processors;
  result.warps_per_processor = blocks * (threads / device->warp_size) / device->processors;
  if (device->threads_per_processor == 0) return result;

  const auto block_warps = static_cast<std::uint64_t>(warps);
  const std::uint64_t max_warps = device->threads_per_processor / device->warp_size;
  std::uint64_t fit = std::min(kMaxBlocks, max_warps / block_warps);
  if (kernel.registers && device->registers_per_processor) {
    const std::uint64_t a_warp =
        up_to(std::uint64_t{kernel.registers} * device->warp_size, kRegisterUnit);
    fit = std::min(fit, device->registers_per_processor / a_warp / block_warps);
  }
  std::uint64_t shared = std::uint64_t{kernel.static_shared} + kernel.dynamic_shared;
  if (device->compute_major >= 8) shared += kReservedShared;
  if (shared && device->shared_per_processor)
    fit = std::min(fit, device->shared_per_processor / shared);
  const double resident = std::min(static_cast<double>(fit), result.blocks_per_processor);
  const double share = resident * threads / device->threads_per_processor;
  result.percent = static_cast<std::uint32_t>(std::lround(100 * std::clamp(share, 0.0, 1.0)));
  return result;
}

}  // namespace dynprof
