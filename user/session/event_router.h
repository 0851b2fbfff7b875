// Takes each event of the kernel side to what handles it: samples and waits to the encoder, torch's events to
// the process they are of, forks, execs and exits to the table of processes.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "user/gpu/gpu_collector.h"
#include "user/kernel/event_view.h"
#include "user/process/native_spaces.h"
#include "user/process/process_lives.h"
#include "user/process/process_table.h"
#include "user/process/sample_encoder.h"
#include "user/session/exec_rate.h"
#include "user/session/notes.h"
#include "user/session/poll_pace.h"
#include "user/session/session_losses.h"
#include "user/session/targets.h"
#include "user/waits/off_cpu.h"

namespace dynprof {

class EventRouter {
 public:
  // All outlive the router.
  struct Parts {
    RecordingWriter& writer;
    SampleEncoder& encoder;
    ProcessTable& processes;
    Targets& targets;
    const ProcessLives& lives;
    GpuCollector& gpu;
    OffCpu* off_cpu;       // null: waits are not recorded
    NativeSpaces* native;  // null: native stacks are not recorded
    SessionLosses& losses;
    PollPace& pace;
    Notes& notes;
    bool launched;  // the target's first exec is the command itself
  };

  explicit EventRouter(Parts parts) : to_(parts) {}

  // One event as it came; malformed ones are counted.
  void route(std::span<const std::byte> bytes);

 private:
  struct Handlers;

  Parts to_;
  ExecRate exec_rate_;
};

}  // namespace dynprof
