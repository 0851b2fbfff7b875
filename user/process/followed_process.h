// One process the recording follows: its identity, its Python and torch, its native addresses, and torch's
// compiles in it. Python and torch may appear later (a command just started, an exec, an import), so both
// are looked for again until found or given up.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/kernel/kernel_side.h"
#include "user/process/kernel_entry.h"
#include "user/process/look_schedule.h"
#include "user/process/native_addresses.h"
#include "user/process/process_identity.h"
#include "user/process/process_python.h"
#include "user/process/torch_finder.h"
#include "user/process/torch_tracer.h"

namespace dynprof {

struct FollowOptions {
  bool children = true;                      // forks are followed
  bool command_lines = true;                 // kept in the recording
  bool gpu_work = false;                     // see KernelEntry::expect_gpu_work()
  std::vector<std::string> user_packages{};  // installed packages that are the user's own code
  bool record_functions = false;             // see AnnotationProbes
  bool all_user_lines = false;               // see LineWatch
};

class FollowedProcess {
 public:
  // `options`, `kernel` and `images` outlive it. `parent` 0: not known, or a target.
  FollowedProcess(pid_t pid, pid_t parent, const FollowOptions& options, KernelSide& kernel,
                  KnownImages& images);
  FollowedProcess(const FollowedProcess&) = delete;
  FollowedProcess& operator=(const FollowedProcess&) = delete;

  // Takes over what the parent's memory image had at the moment of fork.
  void inherit(const FollowedProcess& parent);
  // The old image is gone: exec.
  void forget_image(std::uint64_t now_ns);

  // Looks for Python and torch, and tells the kernel side. An error: no Python that can be used; fault().
  Result<void> discover(std::uint64_t now_ns);
  PythonFault fault() const { return fault_; }
  // When discover() is to be called next; 0: never again.
  std::uint64_t next_look_ns() const;
  // No probe will be set any more: they are, or this is no Python.
  bool probes_settled() const { return tracer_.probes_attached() || next_look_ns() == 0; }

  // Writes what is known of the process into the recording, when that changed.
  void describe(RecordingWriter& writer);
  // Why something is missing that could be there; once each, "" otherwise.
  std::string take_problem();

  pid_t pid() const { return identity_.pid(); }
  ProcessIdentity& identity() { return identity_; }
  ProcessPython& python() { return python_; }
  const ProcessPython& python() const { return python_; }
  TorchFinder& torch() { return torch_; }
  const TorchFinder& torch() const { return torch_; }
  NativeAddresses& native() { return native_; }
  TorchTracer& tracer() { return tracer_; }
  const TorchTracer& tracer() const { return tracer_; }
  KernelEntry& entry() { return entry_; }

 private:
  // Each uses those before it.
  ProcessIdentity identity_;
  LookSchedule schedule_;
  ProcessPython python_;
  NativeAddresses native_;
  TorchFinder torch_;
  KernelEntry entry_;
  TorchTracer tracer_;
  PythonFault fault_ = PythonFault::kNone;
  bool waits_for_descriptors_ = false;  // it could not be examined: no file could be opened
  bool told_descriptors_ = false;
};

}  // namespace dynprof
