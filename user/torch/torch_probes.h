// Probes on the entries of functions in one process (source E): where torch reads the clock, since
// phases begin and end there, and where compiled code begins and ends to run. Gone with this object,
// and with our process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "symbolizer/recording/writer.h"
#include "user/kernel/kernel_side.h"
#include "user/target/process.h"
#include "user/target/python_runtime.h"
#include "user/target/remote_objects.h"
#include "user/torch/open_runs.h"

namespace dynprof {

class TorchProbes {
 public:
  // Once per process; false: torch is there, but its libraries are not mapped yet.
  bool attach(KernelSide& kernel, RemoteObjects& objects, const PythonRuntime& runtime);
  bool attached() const { return attached_; }
  // Begin and end of every phase are reported.
  bool sees_phases() const { return !clock_.empty(); }
  // Where the functions lie that run compiled code.
  const dp_code_range& region() const { return region_; }
  const dp_code_range& node() const { return node_; }
  void detach();

  // Writes the edges of a run. `node_name` is what an autograd node that begins runs, "" for nothing
  // compiled.
  void on_run(const dp_probe_event& event, std::string_view node_name, ThreadId thread,
              RecordingWriter& writer);
  // The process reads the clock too often for reasons of its own.
  void give_up_clock(pid_t pid);

  // What could not be probed, or is not any more, and why; once, "" otherwise.
  std::string take_problem();

 private:
  void attach_clock(KernelSide& kernel, RemoteObjects& objects, const PythonRuntime& runtime);
  void attach_runs(KernelSide& kernel, pid_t pid, const std::vector<Mapping>& mappings);
  void count_run(std::uint64_t now_ns);
  void write_ends(const std::vector<OpenRuns::Run>& runs, bool last_is_known, SpanEdge edge,
                  RecordingWriter& writer);
  void add_problem(const std::string& problem);

  std::vector<Link> clock_;
  std::vector<Link> runs_;
  dp_code_range region_ = {}, node_ = {};
  std::uint64_t second_ = 0;  // of the last runs, and how many
  std::uint32_t runs_in_second_ = 0;
  std::unordered_map<std::uint32_t, OpenRuns> open_;  // by thread
  bool runs_given_up_ = false;
  bool clock_tried_ = false;
  bool attached_ = false;
  std::string problem_;
};

}  // namespace dynprof
