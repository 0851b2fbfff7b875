// What a recording holds of the GPU: calls into CUDA as they began, with the stack that made them, and
// everything that finished, as the library in the target reported it (cupti/wire.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "cupti/wire.h"

namespace dynprof {

// GpuLaunch.flags
inline constexpr std::uint8_t kGpuCallNested = 1;  // as DYNPROF_GPU_CALL_NESTED
// Seen by a probe on CUDA itself: no correlation id, no end, and nothing tells what ran for it.
inline constexpr std::uint8_t kGpuCallBare = 2;
// The innermost frame of its stack did not run: it is the function that stands for the kernel.
inline constexpr std::uint8_t kGpuCallStub = 4;
// The innermost frame of its stack is native: the code that called the driver.
inline constexpr std::uint8_t kGpuCallCaller = 8;
// Behind that frame, or innermost where there is none: a native frame that is the name the driver has of the kernel.
inline constexpr std::uint8_t kGpuCallNamed = 16;

// A thread calls into CUDA to start work on a GPU, or to wait for it.
struct GpuLaunch {
  std::uint64_t time_ns = 0;
  std::uint32_t thread = 0;       // ThreadId
  std::uint32_t correlation = 0;  // unique within the process
  std::uint32_t call = 0;         // DYNPROF_GPU_CALL
  std::uint32_t stack = 0;        // StackId; Python frames, but see `flags`
  std::uint32_t context = 0;      // ContextId: its `torch` part, where torch was asked
  std::uint8_t flags = 0;
  bool operator==(const GpuLaunch&) const = default;
};

// One record of the library's: work on a GPU, a finished call, or a device. `record.name` is a StringId.
struct GpuRecord {
  std::int32_t pid = 0;
  dynprof_gpu_record record = {};
  bool operator==(const GpuRecord& other) const {
    return pid == other.pid && std::memcmp(&record, &other.record, sizeof record) == 0;
  }
};

}  // namespace dynprof
