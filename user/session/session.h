// One recording from attach to detach: loads the kernel side, follows the targets and their children,
// turns events into the recording, and leaves everything as it was.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/recording/writer.h"
#include "user/gpu/gpu_options.h"
#include "user/kernel/kernel_side.h"
#include "user/kernel/perf_event.h"
#include "user/stacks/native_unwind.h"

namespace dynprof {

struct SessionOptions {
  std::vector<pid_t> targets;  // none with `all`
  bool all = false;            // every process there is or will be
  std::uint32_t frequency_hz = kDefaultFrequencyHz;
  std::uint64_t duration_ns = 0;  // 0: until interrupted or the target ends
  std::uint64_t max_bytes = 0;    // of the recording, 0: no limit
  SamplingEvent event = SamplingEvent::kCpuClock;
  bool children = true;
  bool passive = false;     // nothing in a target is changed: no probes, no watchpoints, no library
  bool watchpoints = true;  // hardware ones, where they can be had
  bool direct_map = true;   // see KernelSideOptions
  bool native = true;       // native and kernel frames too
  bool off_cpu = true;      // what threads wait for, and how long
  std::uint64_t off_cpu_threshold_ns = 1'000'000;
  bool command_lines = true;  // keep them: of the target, and of all programs it starts
  std::vector<std::string> user_packages;  // installed, and the user's own code all the same
  NativeLimits native_limits;
  GpuMode gpu = GpuMode::kAuto;
  bool launched = false;  // the target is a command of ours that has not begun yet
};

// What the progress line and the closing summary show.
struct SessionStatus {
  std::uint64_t elapsed_ns = 0;
  std::uint64_t samples = 0;
  std::uint64_t in_compile = 0;
  std::uint64_t lost = 0;
  std::uint64_t bytes = 0;
  std::size_t processes = 0;
};

// How the caller hears of things and says stop.
struct SessionHooks {
  std::function<bool()> stop_requested;
  // The recording then ends, while there is room for what is made from it.
  std::function<bool()> disk_is_nearly_full;
  std::function<void(const SessionStatus&)> progress;     // about four times a second
  std::function<void(const std::string& path)> naming;    // at the end: the file to be named
  std::function<void(const std::string& sentence)> note;  // once per thing worth knowing
};

class Session {
 public:
  // Checks the targets and takes what is needed of the kernel; nothing is sampled yet.
  static Result<std::unique_ptr<Session>> prepare(const SessionOptions& options,
                                                  SessionHooks hooks);
  virtual ~Session() = default;

  // Facts for the recording's Meta: versions, period.
  virtual Meta meta() const = 0;
  // Attaches and returns; what the targets do is recorded from here on.
  virtual Result<void> attach() = 0;
  // Samples until a reason to stop; writes everything, symbols and trailer included. The recording
  // is whole unless an error comes back, and readable even then.
  virtual Result<SessionStatus> run(RecordingWriter& writer) = 0;
  virtual const Trailer& trailer() const = 0;
};

}  // namespace dynprof
