// Time off the CPU (bpf/offcpu.bpf.c): loaded beside what KernelSide loads, whose maps and consumer it
// uses. Turns its events into waits of the recording.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "user/kernel/event_view.h"
#include "user/kernel/kernel_side.h"
#include "user/process/followed_process.h"
#include "user/process/process_table.h"
#include "user/process/sample_encoder.h"

namespace dynprof {

class OffCpu {
 public:
  // A wait at least `threshold_ns` long is recorded by itself. An error: this kernel cannot.
  static Result<std::unique_ptr<OffCpu>> load(KernelSide& kernel, std::uint64_t threshold_ns);
  virtual ~OffCpu() = default;

  // The existing threads of a process: their waits count from now on.
  virtual void add_threads(pid_t pid) = 0;
  virtual Result<void> attach() = 0;
  // About every 20 ms: markers the kernel side may have to learn of.
  virtual void tick() = 0;
  virtual void on_stack(const SampleView& view, FollowedProcess& process,
                        SampleEncoder& encoder) = 0;
  // `process` null: it has ended.
  virtual void on_wait(const dp_wait_event& event, FollowedProcess* process,
                       RecordingWriter& writer) = 0;
  // The waits of this process's threads that go on at this moment, with kWaitAtEnd; of kMaxOpen threads at most.
  static constexpr std::size_t kMaxOpen = 512;
  virtual void write_open(FollowedProcess& process, RecordingWriter& writer) = 0;
  virtual void detach() = 0;
  // After the last event: the sums under way, and what the threads are doing now.
  virtual void finish(ProcessTable& processes, RecordingWriter& writer) = 0;
  // Waits whose stack was not received, or was dropped.
  virtual std::uint64_t stacks_lost() const = 0;
};

}  // namespace dynprof
