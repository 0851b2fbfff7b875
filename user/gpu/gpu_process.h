// GPU tracing of one process: which parts of CUDA it maps, the probes set there, and the status that the
// library in it reports.
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
#include "user/gpu/call_probes.h"
#include "user/gpu/cuda_mappings.h"
#include "user/gpu/gpu_kernel.h"
#include "user/gpu/gpu_view.h"
#include "user/gpu/target_tables.h"

namespace dynprof {

class GpuProcess {
 public:
  explicit GpuProcess(pid_t pid) : pid_(pid), calls_(pid) {}

  // Sets the probes of the best tier instead of those there are.
  Result<void> attach(const CudaMappings& cuda, LaunchStackMode stacks, GpuKernel& kernel);
  GpuTier tier() const { return tier_; }
  // Where the library is refused by CUPTI: probes on calls too, until it is not. The end of the note about that; "" where
  // nothing has changed.
  std::string stand_in(GpuKernel& kernel);

  // In this order: the switch, and when settled() the rest.
  void begin_detach();
  // The library has sent everything, or there is nothing to wait for.
  bool settled() const;
  void finish_detach();

  // A note about its status; "" most of the time.
  std::string on_status(const dynprof_gpu_status& status);
  const std::optional<dynprof_gpu_status>& status() const { return status_; }

  CallProbes& calls() { return calls_; }
  // A call that was announced at a time; false: after begin_detach().
  bool launched(std::uint64_t time_ns, std::uint32_t correlation);
  // What the library says of a call after begin_detach(), or of the work of one: until it is off it sees calls that are not
  // the recording's. To be asked for each record.
  bool after_end(const dynprof_gpu_record& record);
  // A call that a probe saw, though the library sees calls by now. To be asked for each call.
  bool sees_twice(bool by_probe);

  void name(std::uint32_t id, StringId text);
  // 0: not known. One that was sent before this recording began is read from the process.
  StringId name(std::uint32_t id, RecordingWriter& writer);
  // What device a record is of, if it is the first one of a device that was announced before this recording began.
  std::optional<dynprof_gpu_record> unseen_device(const dynprof_gpu_record& record);
  // What another client of CUPTI calls itself: comes before a status that it is in the way.
  void holder(std::string_view name) { holder_ = name; }

 private:
  Result<void> attach_library(const Mapping& library, LaunchStackMode stacks, GpuKernel& kernel);
  bool refused() const;
  bool is_shared() const;

  pid_t pid_;
  GpuTier tier_ = GpuTier::kNone;
  Uprobe launch_;
  std::vector<Uprobe> probes_;  // on the library
  CallProbes calls_;
  bool stood_in_ = false, library_calls_ = false;
  bool detaching_ = false;
  bool off_ = false;
  std::uint64_t detach_begin_ns_ = 0;
  std::uint32_t last_launch_ = 0;        // the highest correlation id
  std::vector<std::uint64_t> switches_;  // the addresses of the counts of its listeners
  std::optional<TargetTables> tables_;
  std::uint64_t devices_ = 0;  // a bit for each that was seen
  std::string holder_;
  std::uint32_t told_ = ~0u;  // the last state a line was written about
  std::optional<dynprof_gpu_status> status_;
  std::unordered_map<std::uint32_t, StringId> names_;
};

}  // namespace dynprof
