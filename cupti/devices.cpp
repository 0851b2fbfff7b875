#include "cupti/devices.h"

#include <string.h>

#include "cupti/cupti.h"
#include "cupti/libc.h"
#include "cupti/output.h"
#include "cupti/probes.h"
#include "cupti/state.h"

namespace dynprof_cupti {
namespace {

// From cuda.h: enum CUdevice_attribute.
enum Attribute : int {
  kThreadsPerBlock = 1,
  kSharedPerBlock = 8,
  kWarpSize = 10,
  kRegistersPerBlock = 12,
  kProcessors = 16,
  kThreadsPerProcessor = 39,
  kComputeMajor = 75,
  kComputeMinor = 76,
  kSharedPerProcessor = 81,
  kRegistersPerProcessor = 82,
  kSharedPerBlockOptin = 97,
};

struct Driver {
  int (*get)(int* device, int ordinal);
  int (*name)(char* text, int bytes, int device);
  int (*memory)(std::size_t* bytes, int device);
  int (*attribute)(int* value, int attribute, int device);
  int (*uuid)(void* bytes, int device);  // nullptr: none
  bool complete() const { return get && name && memory && attribute; }
};

std::uint64_t seen = 0, sent = 0;  // bit per device

Driver find_driver() {
  void* library = find_mapped("libcuda.so");
  Driver driver{};
  driver.get = reinterpret_cast<int (*)(int*, int)>(find_symbol(library, "cuDeviceGet"));
  driver.name = reinterpret_cast<int (*)(char*, int, int)>(find_symbol(library, "cuDeviceGetName"));
  driver.memory =
      reinterpret_cast<int (*)(std::size_t*, int)>(find_symbol(library, "cuDeviceTotalMem_v2"));
  driver.attribute =
      reinterpret_cast<int (*)(int*, int, int)>(find_symbol(library, "cuDeviceGetAttribute"));
  // The second version has that of a MIG instance, where there are such.
  void* uuid = find_symbol(library, "cuDeviceGetUuid_v2");
  if (uuid == nullptr) uuid = find_symbol(library, "cuDeviceGetUuid");
  driver.uuid = reinterpret_cast<int (*)(void*, int)>(uuid);
  return driver;
}

dynprof_gpu_record described[DYNPROF_GPU_MAX_DEVICES];

bool describe(const Driver& driver, std::uint32_t ordinal, dynprof_gpu_record& record) {
  int device = 0;
  char name[256] = "";
  std::size_t memory = 0;
  if (driver.get(&device, static_cast<int>(ordinal)) != 0) return false;
  if (driver.name(name, sizeof name - 1, device) == 0) record.name = state.names.intern(name);
  if (driver.memory(&memory, device) == 0) record.gpu.memory_bytes = memory;
  auto ask = [&](Attribute attribute) {
    int value = 0;
    const bool known = driver.attribute(&value, attribute, device) == 0 && value > 0;
    return known ? static_cast<std::uint32_t>(value) : 0u;
  };
  record.gpu.compute_major = ask(kComputeMajor);
  record.gpu.compute_minor = ask(kComputeMinor);
  record.gpu.threads_per_block = ask(kThreadsPerBlock);
  record.gpu.threads_per_processor = ask(kThreadsPerProcessor);
  record.gpu.registers_per_block = ask(kRegistersPerBlock);
  record.gpu.registers_per_processor = ask(kRegistersPerProcessor);
  record.gpu.warp_size = ask(kWarpSize);
  record.gpu.processors = ask(kProcessors);
  record.gpu.shared_per_block = ask(kSharedPerBlock);
  record.gpu.shared_per_block_optin = ask(kSharedPerBlockOptin);
  record.gpu.shared_per_processor = ask(kSharedPerProcessor);
  if (driver.uuid == nullptr || driver.uuid(record.gpu.uuid, device) != 0)
    memset(record.gpu.uuid, 0, sizeof record.gpu.uuid);
  return true;
}

}  // namespace

void note_device(std::uint32_t device) {
  if (device < DYNPROF_GPU_MAX_DEVICES) seen |= 1ull << device;
}

void forget_devices() { seen = sent = 0; }
void replay_devices() { sent = 0; }

void send_new_devices() {
  if ((seen & ~sent) == 0) return;
  const Driver driver = find_driver();
  tables().devices = reinterpret_cast<std::uintptr_t>(described);
  for (std::uint32_t i = 0; i < DYNPROF_GPU_MAX_DEVICES; ++i) {
    const std::uint64_t bit = 1ull << i;
    if ((seen & ~sent & bit) == 0) continue;
    sent |= bit;
    dynprof_gpu_record record{};
    record.kind = DYNPROF_GPU_DEVICE;
    record.device = i;
    record.start_ns = record.end_ns = monotonic_ns();
    if (!driver.complete() || !describe(driver, i, record)) continue;
    described[i] = record;
    append(record);
  }
}

}  // namespace dynprof_cupti
