// GPU tracing of all processes of a session: finds what can be traced, and turns its events into the
// recording.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/gpu/gpu_options.h"
#include "user/gpu/gpu_process.h"
#include "user/gpu/launch_rate.h"
#include "user/gpu/launch_stacks.h"
#include "user/gpu/library_loader.h"
#include "user/kernel/event_view.h"
#include "user/kernel/kernel_side.h"
#include "user/process/followed_process.h"
#include "user/process/sample_encoder.h"

namespace dynprof {

class GpuCollector {
 public:
  using Note = std::function<void(const std::string& sentence)>;
  // `targets` are those the user named; none with --all.
  GpuCollector(const GpuOptions& options, const std::vector<pid_t>& targets, KernelSide& kernel,
               Note note);

  // Before anything is recorded: --gpu on loads the library into each target that uses CUDA and does not have
  // it, and into their children. Where that is not possible a note says why, and the launches are recorded
  // by probes. Fails for a target that does not use CUDA, and has no child that does. Processes that use CUDA
  // later are loaded into when look() finds them.
  Result<void> load_libraries(bool children, const std::function<bool()>& stop_requested);
  // Looks at a process, if it is time to: it may have mapped CUDA, or more of it, since.
  void look(pid_t pid, std::uint64_t now_ns);
  // From now on a process that was not looked at before has just begun.
  void all_looked_at() { all_looked_at_ = true; }
  // Another program runs in it: exec.
  void forget(pid_t pid);
  // A copy of its parent: CUDA does not work in it, and the library sleeps.
  void forked(pid_t pid) { followed(pid).left_out = true; }
  // Events of it may still come, though it has ended.
  bool traces(pid_t pid) const;
  bool has_library(pid_t pid) const;
  // Nothing will be probed any more that is not already.
  bool probes_settled(pid_t pid);

  // False: malformed.
  bool on_event(const GpuEventView& event, FollowedProcess& process, SampleEncoder& encoder,
                RecordingWriter& writer);

  // The libraries then send what they still have: consume until settled(), at most kDetachNs.
  static constexpr std::uint64_t kDetachNs = 3'000'000'000;
  void begin_detach();
  bool settled() const;
  void finish_detach();

  // What was lost inside the targets, and stacks of launches.
  void fill(Counters& counters) const;

 private:
  struct Followed {
    explicit Followed(pid_t pid) : gpu(pid) {}
    GpuProcess gpu;
    LaunchRate launch_rate;  // of those that the library announced
    std::uint64_t next_look_ns = 0;
    unsigned looks = 0;
    std::string without_cuda;      // its libraries' size when none of them was CUDA's
    bool left_out = false;         // attaching failed, which was noted; or it cannot use CUDA
    bool asked = false;            // the library is being loaded, or was
    bool without_library = false;  // it could not be loaded, which was noted; or is not wanted
  };
  struct Receiver;
  Followed& followed(pid_t pid) { return processes_.try_emplace(pid, pid).first->second; }
  bool awaits_library(pid_t pid, Followed& followed, const CudaMappings& cuda);
  void note_loads(const std::vector<LibraryLoader::Outcome>& outcomes);
  void note_missing_library();
  void note_launch_rate(pid_t pid, const Followed& followed);
  void attach(pid_t pid, Followed& followed, const CudaMappings& cuda);
  void add_losses(const dynprof_gpu_status& status);

  const GpuMode mode_;
  const LaunchStackMode launch_stacks_;
  const std::vector<pid_t> targets_;
  bool children_ = true;                   // of the targets are recorded too
  std::unique_ptr<LibraryLoader> loader_;  // with --gpu on; not with --all
  KernelSide& kernel_side_;
  Note note_;
  std::unique_ptr<GpuKernel> kernel_;
  std::map<pid_t, Followed> processes_;
  bool all_looked_at_ = false;
  LaunchStacks stacks_;
  std::uint64_t lost_in_target_ = 0, capped_ = 0, implausible_ = 0, stacks_missing_ = 0;
};

}  // namespace dynprof
