// GPU tracing of one process: which parts of CUDA it maps, the probes set there, and the status that the
// library in it reports.
//
// Three tiers, each seeing more than the one before; a process moves up when it maps more:
//   kRuntime   calls into libcudart, while there is no driver
//   kDriver    calls into libcuda: every launch, also those of Triton and of libraries that bring
//              their own runtime
//   kLibrary   libdynprof_cupti.so: calls, and what they ran on the GPU
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "symbolizer/recording/model.h"
#include "symbolizer/recording/writer.h"
#include "user/gpu/gpu_kernel.h"
#include "user/gpu/gpu_view.h"
#include "user/gpu/target_tables.h"
#include "user/target/process.h"

namespace dynprof {

enum class GpuTier : std::uint8_t { kNone, kRuntime, kDriver, kLibrary };

// The mappings of a process that matter here.
struct CudaMappings {
  std::optional<Mapping> library, driver, runtime;
  GpuTier best() const;
};
CudaMappings find_cuda(const std::vector<Mapping>& mappings);

class GpuProcess {
 public:
  explicit GpuProcess(pid_t pid) : pid_(pid) {}

  // Sets the probes of this tier instead of those there are.
  Result<void> attach(const CudaMappings& cuda, GpuTier tier, GpuKernel& kernel);
  GpuTier tier() const { return tier_; }

  // In this order: the switch, and when settled() the rest.
  void begin_detach();
  // The library has sent everything, or there is nothing to wait for.
  bool settled() const;
  void finish_detach();

  // A note about its status; "" most of the time.
  std::string on_status(const dynprof_gpu_status& status);
  const std::optional<dynprof_gpu_status>& status() const { return status_; }

  // A thread is about to launch a kernel by the runtime; and the function that stands for the kernel,
  // once it is in the driver. 0: it is there on its own. Stack pointers, of the driver's the lower half.
  void stub(std::uint32_t tid, std::uint64_t function, std::uint64_t sp);
  std::uint64_t take_stub(std::uint32_t tid, std::uint32_t sp);

  void name(std::uint32_t id, StringId text);
  // 0: not known. One that was sent before this recording began is read from the process.
  StringId name(std::uint32_t id, RecordingWriter& writer);
  // What device a record is of, if it is the first one of a device that was announced before this recording began.
  std::optional<dynprof_gpu_record> unseen_device(const dynprof_gpu_record& record);
  // What another client of CUPTI calls itself: comes before a status that it is in the way.
  void holder(std::string_view name) { holder_ = name; }

 private:
  Result<void> attach_library(const Mapping& library, GpuKernel& kernel);
  Result<void> attach_calls(const Mapping& mapping, bool driver, GpuKernel& kernel);
  void attach_stubs(const Mapping& runtime, GpuKernel& kernel);
  bool is_shared() const;

  pid_t pid_;
  GpuTier tier_ = GpuTier::kNone;
  Uprobe launch_;
  std::vector<Uprobe> probes_;
  bool detaching_ = false;
  bool off_ = false;
  std::uint64_t detach_begin_ns_ = 0;
  std::optional<std::uint64_t> switch_;  // the address of the count of its listeners
  std::optional<TargetTables> tables_;
  std::uint64_t devices_ = 0;  // a bit for each that was seen
  std::string holder_;
  std::uint32_t told_ = ~0u;  // the last state a line was written about
  std::optional<dynprof_gpu_status> status_;
  std::unordered_map<std::uint32_t, StringId> names_;
  struct Stub {
    std::uint64_t function, sp;
  };
  std::unordered_map<std::uint32_t, Stub> stubs_;  // by tid
};

}  // namespace dynprof
